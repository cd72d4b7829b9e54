"""What is kept on disk. Knows files, rows and arrays; not models, chats on a screen or commands."""

"""The middle of the chat screen: prompt, open chat, list of chats, and their actions."""

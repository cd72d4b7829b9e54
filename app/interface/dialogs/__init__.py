"""Small screens over the chat: confirmation, search, citations, chat settings, presets."""

"""Small screens over the chat: confirm, search, chat settings, presets."""

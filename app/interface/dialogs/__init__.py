"""Small screens over the chat: confirm, search, chat settings, presets.

A new one is a screen with its `.tcss` beside it, a row in `app.interface.commands.table` that opens
it, and a line in `app.interface.commands.scopes` that lists its keys.
"""

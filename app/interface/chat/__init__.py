"""The chat screen's middle: the prompt, the open chat, the list of chats, what is done to them."""

"""The running program without a screen: the model's thread, sessions, idle work and deletion."""

"""The running program without a screen: the model's thread, its session and its idle work."""

"""Turns tokens into tokens: targets, drafters, the decode loop and learning.

A new engine is a folder that implements `target.Target`, as `llama` and `hf` do, and a case in
`app.engine.engine`, which decides by the model's file.
"""

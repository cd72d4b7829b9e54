"""Tokens in, tokens out. Knows targets, drafts and the loop; not where files are, nor screens.

A new engine is a folder that implements `target.Target`, as `llama` and `hf` do, and a case in
`app.engine.engine`, which decides by the model's file.
"""

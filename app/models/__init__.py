"""The models on this machine: found, described, chosen, downloaded, and checked against its memory.

Headless. Other programs' folders are only read, and their models used where they are; downloads go
to the cache that Hugging Face's libraries share.
"""

"""The models on this machine: found, described, chosen, downloaded, and checked against its memory.

Other programs' folders are only read, and their models used in place; downloads go to the cache
that Hugging Face's libraries share.
"""

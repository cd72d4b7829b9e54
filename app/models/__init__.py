"""The models on this machine: found, chosen, fetched, and weighed against the memory there is.

Headless. Other programs' folders are only read; their models are used where they lie.
"""

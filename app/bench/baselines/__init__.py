"""Baselines: REST, CREST as published, drafts of fixed shape."""

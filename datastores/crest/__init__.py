"""CREST on disk: the most useful n-grams and their continuations, in few bytes."""

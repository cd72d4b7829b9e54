"""The embedded models and the recipe that made them."""

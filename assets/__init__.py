"""The embedded model pair and the recipe that made it."""

"""What is kept on disk, and, as the lowest package, every error. Knows no models and no screens."""

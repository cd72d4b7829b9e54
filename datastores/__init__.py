"""What is stored on disk, and, as the lowest package, every error.

A new store is a folder with a `store`, a path in `app.locations`, a line in `app.engine.stores` if
drafters read it, and one in `app.runtime.deletion.ERASERS`, so that deleted texts leave it.
"""

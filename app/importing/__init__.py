"""Imports a person's texts: finds files, reads their documents, removes secrets, stores them.

`pipeline.import_paths` is the entry point, a generator of the events in `events`. The command line
runs it in its own process (`session`), the interface in a child process (`process`). `readers`
holds the formats.
"""

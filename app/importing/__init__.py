"""Importing a person's own texts: found, read, freed of secrets, stored in the library.

`run.import_paths` is the whole of it, a generator of the events in `events`; everything else here
is a step of its work. Headless: the command line and the interface show the same events.
"""

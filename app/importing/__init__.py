"""Importing a person's own texts: found, read, freed of secrets, stored in the library.

`run.import_paths` is the whole of it, a generator of the events in `events`; everything else here
is a step of its work. Headless: the command line runs it in its own process (`session`), the
interface in one beside it (`beside`), and both show the same events.
"""

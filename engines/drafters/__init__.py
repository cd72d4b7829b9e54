"""The drafters: each proposes continuations for the target to verify; none has its own loop.

A new one is a file that implements `protocol.Drafter`, a bit in `engines.draft_tree` for the source
it is credited as, and a line in `app.engine.stores` that makes it.
"""

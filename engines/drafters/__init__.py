"""The drafters: each proposes continuations for the target to verify; none has its own loop.

A new one is a file that implements `protocol.Drafter`, a bit in `engines.draft_tree` for its
origin, a line in `app.engine.drafters` that creates it, its name in `app.config.DRAFTERS`, and a
label and colour in `app.interface.draft_origins`.
"""

"""The process that embeds at normal priority: beside load, the lowest gets no time at all."""

from __future__ import annotations

from app.indexing.embedding_process import embed_on_request
from engines.child_process import run_child

if __name__ == "__main__":
    run_child(embed_on_request)

"""Retrieval while an answer is written: iterative RaLM, and RaLMSpec, which writes the same faster.

Every k tokens the last words are a query, and the best passage for it stands before the prompt in
place of the last one. Each stride of k tokens is written by the one decode loop, with its drafters:

    KnowledgeBase          StrideWriter                       the answer
    encode, search, score  decode() under one passage         confirmed steps
          │                       │                                ▲
          ├── RaLMSeq (`sequential`): search, write a stride, confirm it ────┤
          │                       │                                │
          └── RaLMSpec (`speculative`): guess from the request's cache       │
              (`cache`), write s strides ahead (`scheduler`: s), verify      │
              their queries in one batch (`verification`), roll back at the  │
              first wrong guess, confirm the rest ───────────────────────────┘

A draft that reaches the end of a stride tells the query of the next one: it is searched for beside
the pass that verifies the draft (`foresight`), and then there is nothing to guess.

Whatever is guessed, the text is that of RaLMSeq, token for token: a stride is confirmed only once
the passage that it was written under is known to be the best one for its query.

Retrieval only chooses passages, so the package knows the protocols of the target, the drafters and
the passages; not how passages are ranked and not what the prompt looks like. A new way to retrieve
is a `KnowledgeBase`, a new way to choose how far to write ahead a `StrideScheduler`.

KNN-LM (`knn_lm`) changes the next token's distribution instead of the prompt, by the states in a
`StateDatastore`. It is a target, over which the same `StrideWriter` and decode loop write; with
RaLMSpec (`knn_speculative`) tokens are drawn with cached neighbours and verified in batches.

Zhang et al. 2024, "Accelerating Retrieval-Augmented Language Model Serving with Speculation".
"""

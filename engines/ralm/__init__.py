"""Retrieval while an answer is written: iterative RaLM, and RaLMSpec, which writes the same faster.

Every k tokens the last words become a query, and the best passage for it replaces the one before
the prompt. Each stride of k tokens is written by the one decode loop, with its drafters:

    KnowledgeBase          StrideWriter                       the answer
    encode, search, score  decode() under one passage         confirmed steps
          │                       │                                ▲
          ├── RaLMSeq (`sequential`): search, write a stride, confirm it ────┤
          │                       │                                │
          └── RaLMSpec (`speculative`): guess from the answer's cache,       │
              write s strides ahead (`scheduler`: s), verify their queries   │
              in one batch (`verification`), roll back at the first wrong    │
              guess, confirm the rest ───────────────────────────────────────┘

The text equals that of RaLMSeq token for token: a stride is confirmed only once the passage that it
was written under is known to be the best for its query.

The package does not know how passages are ranked or what the prompt looks like. A new way to
retrieve is a `KnowledgeBase`, a new way to choose s a `StrideScheduler`.

KNN-LM (`knn_lm`) changes the next token's distribution instead of the prompt, using the states in a
`StateDatastore`. It is a target, driven by the same `StrideWriter` and decode loop; under RaLMSpec
(`knn_speculative`) tokens are drawn with cached neighbours and verified in batches.

Zhang et al. 2024, "Accelerating Retrieval-Augmented Language Model Serving with Speculation".
"""

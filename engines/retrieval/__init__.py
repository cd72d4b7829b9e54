"""Retrieval: ranks the passages of imported texts for a question.

A new retriever implements `protocol.Retriever`; `app.indexing.passage_index` and
`app.conversation.imported_texts` choose between them, and `engines.ralm.knowledge_base` scores a
given subset with it.
"""

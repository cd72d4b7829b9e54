"""Passages: the imported texts in chunks that can be retrieved, and what ranks them.

A new retriever implements `protocol.Retriever`; `app.indexing.passage_index` and
`app.conversation.imported_texts` choose between them, and `engines.ralm.knowledge_base` scores a
given subset with it.
"""

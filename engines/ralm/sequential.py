"""RaLMSeq: iterative retrieval with one search before each stride.

The baseline of RaLMSpec, which must write the same text (Ram et al. 2023; RaLMSpec section 5.1).
"""

from __future__ import annotations

from collections.abc import Generator
from time import perf_counter

from engines.ralm.events import ConfirmedStride, RalmStatistics
from engines.ralm.knowledge_base import KnowledgeBase, Query
from engines.ralm.stride_writer import RalmRequest, StrideWriter, passage_id


def write_iteratively(
    writer: StrideWriter, base: KnowledgeBase, request: RalmRequest, statistics: RalmStatistics
) -> Generator[ConfirmedStride]:
    """Answer `request`: search, write k tokens under the best passage, repeat.

    Drafts must not reach beyond a stride, since the next one's passage is unknown.

    Raises:
        ContextOverflowError: the first prompt does not fit into the context.
        SpecchatError: the knowledge base cannot be read.
    """
    previous: int | None = None
    try:
        while not writer.finish:
            start = len(writer.tokens)
            query = encode(base, request, writer, start, statistics)
            started = perf_counter()
            (found,) = base.search([query], 1)
            seconds = perf_counter() - started
            statistics.search_s += seconds
            statistics.waited_s += seconds
            statistics.searches += 1
            statistics.queries += 1
            passage = found[0].passage if found else None
            writer.write(passage, start, start + request.stride)
            statistics.strides += 1
            statistics.changes += bool(start) and passage_id(passage) != previous
            previous = passage_id(passage)
            record_writing(writer, statistics)
            steps = tuple(writer.confirm(len(writer.tokens)))
            yield ConfirmedStride(passage, steps, writer.finish)
    finally:
        writer.close()


def encode(
    base: KnowledgeBase,
    request: RalmRequest,
    writer: StrideWriter,
    start: int,
    statistics: RalmStatistics,
) -> Query:
    """The query of the stride that begins at `start`."""
    started = perf_counter()
    query = base.encode(request.query(writer.tokens[:start]), writer.passage)
    statistics.encoding_s += perf_counter() - started
    return query


def record_writing(writer: StrideWriter, statistics: RalmStatistics) -> None:
    """Copy the writer's totals into `statistics`."""
    statistics.generation_s = writer.seconds
    statistics.prefills, statistics.passes = writer.prefills, writer.passes

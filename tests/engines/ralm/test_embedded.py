"""RaLMSpec equals RaLMSeq on the embedded model, in exact mode, over BM25 and its own prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from datastores.passages.chunks import Passage, split
from datastores.passages.store import PassageStore
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.token_recycling import TokenRecycling
from engines.llama.model import LlamaModel, load
from engines.ralm.events import RalmStatistics
from engines.ralm.knowledge_base import KnowledgeBase, TextKnowledgeBase
from engines.ralm.scheduler import FixedStride, OptimalStride
from engines.ralm.sequential import write_iteratively
from engines.ralm.speculative import SpeculativeRalm
from engines.ralm.stride_writer import RalmRequest, StrideWriter
from engines.retrieval.bm25 import Bm25Retriever
from engines.sampler import Sampling, make_sampler
from tests.engines.conftest import EMBEDDED, THREADS
from tests.engines.ralm.scripted import text

QUERY_TOKENS, ANSWER = 32, 36
VERBS = ("list", "copy", "remove", "compress", "encrypt", "mount")
NOUNS = ("archives", "snapshots", "volumes")


@pytest.fixture(scope="module")
def exact() -> LlamaModel:
    return load(EMBEDDED, threads=THREADS, context_length=1024, exact=True)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeBase]:
    store = PassageStore.open(Path(tmp_path_factory.mktemp("passages")) / "passages.sqlite")
    for number, (verb, noun) in enumerate(product(VERBS, NOUNS)):
        task = f"{verb} all {noun}:\n\n`{noun}ctl {verb} --all`"
        page = f"# {noun}ctl-{verb}\n\n> {verb} {noun}.\n\n- {task}\n"
        store.add(bytes([number]), ((0, chunk) for chunk in split(page)))
    retriever = Bm25Retriever(store)
    yield TextKnowledgeBase(retriever)
    store.close()


def request(model: LlamaModel, question: str, temperature: float) -> RalmRequest:
    asked = model.vocabulary.encode(question)

    def prompt(passage: Passage | None) -> list[int]:
        notes = [] if passage is None else [Message("system", f"Notes:\n\n{passage.chunk.content}")]
        return model.render([*notes, Message("user", question)])

    def query(answer: Sequence[int]) -> str:
        last = [*asked, *answer][-QUERY_TOKENS:]
        return b"".join(map(model.vocabulary.piece, last)).decode(errors="replace")

    return RalmRequest(
        prompt,
        query,
        make_sampler(Sampling(temperature, seed=11)),
        StopCriteria(model.vocabulary.stops, ANSWER),
        temperature,
    )


def writer(model: LlamaModel, asked: RalmRequest, *, drafts: bool, across: bool) -> StrideWriter:
    drafters: list[Drafter] = [PromptLookup(), TokenRecycling()] if drafts else []
    budget = FixedBudget(6 if drafts else 0, CostModel(), AcceptanceModel())
    return StrideWriter(model.target, drafters, budget, asked, across=across)


@pytest.mark.parametrize(
    ("question", "temperature"),
    [("Compress all archives in a folder and then encrypt them", 0.0), ("remove volumes", 0.8)],
)
def test_every_subset_writes_the_same_text(
    exact: LlamaModel, base: KnowledgeBase, question: str, temperature: float
) -> None:
    asked = request(exact, question, temperature)
    plain = RalmStatistics()
    sequential = writer(exact, asked, drafts=False, across=False)
    expected = list(write_iteratively(sequential, base, asked, plain))
    subsets = list(product((1, 20), (False, True), (False, True), (True,)))
    for prefetch, schedules, asynchronous, drafts in [(1, False, False, False), *subsets]:
        statistics = RalmStatistics()
        ralm = SpeculativeRalm(
            writer(exact, asked, drafts=drafts, across=drafts),
            base,
            asked,
            OptimalStride(asynchronous=asynchronous) if schedules else FixedStride(3),
            statistics,
            prefetch=prefetch,
            asynchronous=asynchronous,
        )
        written = list(ralm.write())
        assert text(written) == text(expected)
        assert [one.passage for one in written] == [one.passage for one in expected]
        assert statistics.strides == plain.strides
        assert statistics.changes == plain.changes

"""The check of passages: what the model is asked, what follows, and where it is not asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.conversation import answer_request
from app.conversation.assistant import Assistant
from app.conversation.citations import NO_PASSAGE, SEARCH_KEY, SearchOutcome
from app.conversation.events import Cited, Event, Finished, Prefilling, Retrieved, Wrote
from app.conversation.imported_texts import INSTRUCTION, ImportedTexts
from app.conversation.passage_check import (
    EXAMPLES,
    MAX_QUESTION,
    NOT_COVERED,
    PassageCheck,
    says_yes,
)
from app.engine.engine import Engine, PassageForm
from app.indexing.passage_index import update
from app.locations import Locations
from datastores.chats.history import History
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from datastores.tokens import common_prefix
from engines.chat_template.prompt_builder import Message
from engines.target import Floats, ForwardOutput
from tests.app.scripted import ScriptedVocabulary, render, scripted_engine
from tests.engines.scripted import VOCABULARY, ScriptedTarget

WALRUS = "The walrus keeps seventeen brass telescopes in the attic."
ASKED = "How many telescopes does the giraffe keep?"
VOCABULARY_OF_LETTERS = ScriptedVocabulary()
YES, NO, HMM = (VOCABULARY_OF_LETTERS.encode(word)[0] for word in ("yes", "no", "hmm"))


def logits_for(token: int, strength: float = 20.0) -> Floats:
    """Logits of a model that says `token`."""
    logits = np.zeros(VOCABULARY, np.float32)
    logits[token] = strength
    return logits


class Judge(ScriptedTarget):
    """Replies `verdict` about each passage, but no about those that lack `stated`.

    Attributes:
        judged: the passages, as it was asked about them.
        read: tokens evaluated, none of which were cached or parked.
    """

    def __init__(self, verdict: int, *, stated: str = "", context_length: int = 4096) -> None:
        super().__init__(context_length=context_length)
        self.verdict, self.stated = verdict, stated
        self.judged, self.read = list[str](), 0
        self._parked = list[list[int]]()

    def park(self) -> None:
        """Keep the cached text."""
        self._parked.append(list(self.tokens))

    def drop_parked(self) -> None:
        """Drop all parked texts."""
        self._parked.clear()

    def cached_prefix(self, tokens: Sequence[int]) -> int:
        """Length of the longest prefix of `tokens` that is cached or parked."""
        return max(common_prefix(one, tokens) for one in (self.tokens, *self._parked))

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """As any scripted target, but for the check."""
        self.read += len(tokens) - self.cached_prefix(tokens)
        yield from super().prefill(tokens)
        asked = "".join(map(VOCABULARY_OF_LETTERS.text, tokens))
        if asked.startswith(letters(EXAMPLES)) and asked.endswith(letters("Stated:")):
            self.judged.append(asked[len(EXAMPLES) :])
            row = logits_for(self.verdict if letters(self.stated) in asked else NO)[None]
            self._last_row = ForwardOutput(row, row[:, : self.width])


def letters(text: str) -> str:
    """How the vocabulary reads `text`."""
    return "".join(map(VOCABULARY_OF_LETTERS.text, VOCABULARY_OF_LETTERS.encode(text)))


def question_about(name: str, text: str, asked: str = ASKED) -> str:
    """What a `Judge` is asked about a passage."""
    return letters(f"Excerpt: {name}\n{text}\nQuestion: {asked}\nStated:")


@pytest.fixture
def imports(tmp_path: Path) -> Iterator[ImportedTexts]:
    locations = Locations(data=tmp_path, cache=tmp_path / "cache", config=tmp_path)
    with closing(ImportedTexts.open(locations)) as opened:
        put(opened, "walrus.md", WALRUS)
        yield opened


def put(imports: ImportedTexts, name: str, text: str) -> None:
    document = Document(name, (Part(NOTES, text),))
    imports._library.write([StoreDocument("/notes", name, 0, document)])
    list(update(imports._library, imports._passages))


@pytest.fixture(autouse=True)
def used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted answer is letters, so it would use no passage."""
    monkeypatch.setattr(answer_request, "used_passages", lambda *given: tuple(given[-1]))


def engine_of(
    folder: Path, verdict: int, stated: str = ""
) -> tuple[Engine, Judge, list[list[Message]]]:
    """An engine whose model replies `verdict`, its target, and the prompts it will render."""
    target, prompts = Judge(verdict, stated=stated), list[list[Message]]()
    engine = scripted_engine(folder, max_tokens=20)
    engine.target, engine.passage_form = target, PassageForm(judges=True)

    def rendered(messages: Sequence[Message]) -> list[int]:
        prompts.append(list(messages))
        return render(messages)

    engine.render = rendered
    return engine, target, prompts


def contents(prompts: Sequence[Sequence[Message]], question: str) -> list[str]:
    """The message before `question` in each of the prompts that end with it."""
    return [one[-2].content for one in prompts if len(one) > 1 and one[-1].content == question]


def answered(events: Iterator[Event]) -> tuple[list[Retrieved], Cited, Finished]:
    found = list(events)
    *_, cited, finished = found
    assert isinstance(cited, Cited)
    assert isinstance(finished, Finished)
    return [one for one in found if isinstance(one, Retrieved)], cited, finished


@pytest.mark.parametrize("verdict", [YES, HMM], ids=["yes", "does not judge"])
def test_passages_that_state_the_answer_are_answered_from(
    tmp_path: Path, history: History, imports: ImportedTexts, verdict: int
) -> None:
    engine, target, prompts = engine_of(tmp_path, verdict)
    chat = history.create_chat().id
    retrieved, cited, _ = answered(Assistant(engine, history, imports).answer(chat, None, ASKED))
    assert target.judged == [question_about("walrus.md", WALRUS)]
    assert [[one.file for one in event.passages] for event in retrieved] == [["walrus.md"]]
    assert [one.file for one in cited.passages] == ["walrus.md"]
    assert cited.outcome == SearchOutcome(1, texts=1)
    assert contents(prompts, ASKED)[-1].startswith(INSTRUCTION)


def test_passages_that_do_not_state_it_are_left_out_and_the_model_is_told(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, target, prompts = engine_of(tmp_path, NO)
    chat, outcome = history.create_chat().id, SearchOutcome(texts=1, rejected=1)
    retrieved, cited, _ = answered(Assistant(engine, history, imports).answer(chat, None, ASKED))
    assert [one.outcome for one in retrieved] == [SearchOutcome(1, texts=1), outcome]
    assert retrieved[-1].passages == ()
    assert cited == Cited((), outcome)
    assert outcome.lines(0) == [NO_PASSAGE]
    assert contents(prompts, ASKED)[-1] == NOT_COVERED
    assert not any(WALRUS in one.content for one in prompts[-1])
    assert len(target.judged) == 1
    _, answer = history.thread(chat)
    stored = answer.statistics[SEARCH_KEY]
    assert isinstance(stored, dict)
    assert stored["rejected"] == 1


def test_each_passage_is_judged_until_one_states_it(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    best = "A giraffe keeps no telescopes, and how many umbrellas nobody knows."
    put(imports, "giraffe.md", best)
    engine, target, prompts = engine_of(tmp_path, YES, WALRUS)
    assistant, chat = Assistant(engine, history, imports), history.create_chat().id
    (retrieved,), cited, _ = answered(assistant.answer(chat, None, ASKED))
    assert [one.file for one in retrieved.passages] == ["giraffe.md", "walrus.md"]
    assert cited.outcome == SearchOutcome(2, texts=2)
    assert target.judged == [
        question_about("giraffe.md", best),
        question_about("walrus.md", WALRUS),
    ]
    assert best in contents(prompts, ASKED)[-1]
    target.stated = best
    answered(assistant.answer(history.create_chat().id, None, ASKED))
    assert len(target.judged) == 3, "the first states it"


def test_neither_the_examples_nor_the_chat_are_read_again(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, target, prompts = engine_of(tmp_path, NO)
    assistant = Assistant(engine, history, imports)
    list(assistant.answer(history.create_chat().id, None, ASKED))
    chat = history.create_chat().id
    list(assistant.answer(chat, None, "Hello!"))
    _, answer = history.thread(chat)
    target.read = 0
    list(assistant.answer(chat, answer.id, ASKED))
    prompt = next(one for one in reversed(prompts) if one[-2].content == NOT_COVERED)
    question = len(render(prompt[:1])) - 1  # what follows it is marked otherwise than an answer
    assert target.read == len(target.judged[-1]) + len(render(prompt)) - question


def test_a_passage_that_matches_all_words_but_one_must_be_surer(
    imports: ImportedTexts,
) -> None:
    (found,) = imports.ranked(ASKED, 1)
    passages = [replace(found, unevenness=value) for value in (None, 0.02, 0.15, 0.4)]
    check = PassageCheck(PassageForm(), [], ASKED, tuple(passages), SearchOutcome())
    unknown, even, usual, uneven = (min_odds for _, min_odds in check.asked())
    assert even < unknown == usual < uneven


def test_a_follow_up_is_judged_with_what_it_follows(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, target, _ = engine_of(tmp_path, YES)
    assistant, chat = Assistant(engine, history, imports), history.create_chat().id
    answered(assistant.answer(chat, None, ASKED))
    _, answer = history.thread(chat)
    answered(assistant.answer(chat, answer.id, "and brass ones?"))
    assert target.judged[-1] == question_about("walrus.md", WALRUS, f"{ASKED}\nand brass ones?")


def test_a_stopped_answer_is_continued_as_it_began(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, target, prompts = engine_of(tmp_path, NO)
    assistant, chat = Assistant(engine, history, imports), history.create_chat().id
    with closing(assistant.answer(chat, None, ASKED)) as events:
        for event in events:
            if isinstance(event, Wrote):
                assistant.stop()
    _, answer = history.thread(chat)
    target.verdict = YES
    prompts.clear()
    _, cited, _ = answered(assistant.resume(answer.id))
    assert contents(prompts, ASKED)[-1] == NOT_COVERED
    assert cited.outcome == SearchOutcome(texts=1, rejected=1)
    assert len(target.judged) == 1


def test_the_check_can_be_interrupted(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, target, _ = engine_of(tmp_path, NO)
    assistant, chat = Assistant(engine, history, imports), history.create_chat().id
    events = assistant.answer(chat, None, ASKED)
    for event in events:
        if isinstance(event, Prefilling):
            assistant.stop()
            break
    rest = list(events)
    assert isinstance(rest[-1], Finished)
    assert rest[-1].finish == "interrupted"
    assert target.judged == []
    assert not any(isinstance(event, Wrote) for event in rest)


@pytest.mark.parametrize("hindrance", ["form", "memory", "room", "question"])
def test_a_model_that_cannot_be_asked_gets_the_passages(
    tmp_path: Path, history: History, imports: ImportedTexts, hindrance: str
) -> None:
    engine, target, prompts = engine_of(tmp_path, NO)
    asked = ASKED
    if hindrance == "form":
        engine = replace(engine, passage_form=PassageForm())
    elif hindrance == "memory":
        target.rollback_rows = 8
    elif hindrance == "question":
        asked += " " + "Please? " * (MAX_QUESTION // len("Please? "))
    else:
        longest = [Message("system", INSTRUCTION), Message("user", ASKED)]
        target.context_length = len(render(longest)) + 2 * len(WALRUS)
    chat = history.create_chat().id
    _, cited, _ = answered(Assistant(engine, history, imports).answer(chat, None, asked))
    assert target.judged == []
    assert [one.file for one in cited.passages] == ["walrus.md"]
    assert WALRUS in contents(prompts, asked)[-1]


def test_yes_is_weighed_against_no() -> None:
    def likes(yes: float, no: float, other: float = 0.0) -> bool:
        logits = np.full(VOCABULARY, -50.0, np.float32)
        logits[[YES, NO, HMM]] = yes, no, other
        return says_yes(logits, VOCABULARY_OF_LETTERS, 0.0)

    assert likes(5.0, 2.0)
    assert not likes(2.0, 5.0)
    assert likes(2.0, 5.0, other=9.0), "it would say something else"

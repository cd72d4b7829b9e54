"""The check of passages: what is checked, what follows, and where nothing is checked."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from app.conversation import answer_request
from app.conversation.assistant import Assistant
from app.conversation.citations import NO_PASSAGE, NOTHING_FOUND, SEARCH_KEY, SearchOutcome
from app.conversation.events import Checking, Cited, Event, Finished, Prefilling, Retrieved, Wrote
from app.conversation.imported_texts import INSTRUCTION, ImportedTexts
from app.conversation.passage_check import MAX_QUESTION, NOT_COVERED, SURE, answering, with_passages
from app.engine.answerability import Answerability, PassageCheck
from app.engine.engine import Engine, PassageForm
from app.indexing.passage_index import FoundPassage, update
from app.locations import Locations
from datastores.chats.history import History
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from datastores.passages.chunks import Chunk
from datastores.tokens import common_prefix
from engines.answerability import MIN_AUC, write_classifier
from engines.chat_template.prompt_builder import Message
from engines.target import Stop
from tests.app.scripted import render, scripted_engine
from tests.app.scripted_states import ScriptedModel, as_read, classifier, letters
from tests.engines.scripted import ScriptedTarget

T = TypeVar("T")

WALRUS = "The walrus keeps seventeen brass telescopes in the attic."
ASKED = "How many telescopes does the giraffe keep?"


class CountingTarget(ScriptedTarget):
    """Counts the tokens that it evaluates, which were not cached.

    Attributes:
        read: their number.
    """

    def __init__(self) -> None:
        super().__init__(context_length=4096)
        self.read = 0

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """As any scripted target."""
        self.read += len(tokens) - common_prefix(self.tokens, tokens)
        return super().prefill(tokens)


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
    folder: Path, *, stated: str | None = None
) -> tuple[Engine, ScriptedModel, list[list[Message]]]:
    """An engine, the model whose states say that passages with `stated` state the answer, and the
    prompts that the engine will render."""
    prompts = list[list[Message]]()
    model = ScriptedModel(lambda text: stated is not None and letters(stated) in text)
    engine = scripted_engine(folder, max_tokens=20)
    engine.target = CountingTarget()
    engine.answerability = Answerability(model, folder, engine.resources.errors.append)
    write_classifier(engine.answerability.path, classifier())

    def rendered(messages: Sequence[Message]) -> list[int]:
        prompts.append(list(messages))
        return render(messages)

    engine.render = rendered
    return engine, model, prompts


def contents(prompts: Sequence[Sequence[Message]], question: str) -> list[str]:
    """The message before `question` in each of the prompts that end with it."""
    return [one[-2].content for one in prompts if len(one) > 1 and one[-1].content == question]


def answered(events: Iterator[Event]) -> tuple[list[Retrieved], Cited, Finished]:
    found = list(events)
    *_, cited, finished = found
    assert isinstance(cited, Cited)
    assert isinstance(finished, Finished)
    return [one for one in found if isinstance(one, Retrieved)], cited, finished


def test_passages_that_state_the_answer_are_answered_from(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, model, prompts = engine_of(tmp_path, stated=WALRUS)
    chat = history.create_chat().id
    retrieved, cited, _ = answered(Assistant(engine, history, imports).answer(chat, None, ASKED))
    assert model.texts == [as_read(f"walrus.md\n{WALRUS}", ASKED)]
    assert [[one.file for one in event.passages] for event in retrieved] == [["walrus.md"]]
    assert [one.file for one in cited.passages] == ["walrus.md"]
    assert cited.outcome == SearchOutcome(1, texts=1)
    assert contents(prompts, ASKED)[-1].startswith(INSTRUCTION)


def test_passages_that_do_not_state_it_are_left_out_and_the_model_is_told(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, model, prompts = engine_of(tmp_path)
    chat, outcome = history.create_chat().id, SearchOutcome(texts=1, rejected=1)
    retrieved, cited, _ = answered(Assistant(engine, history, imports).answer(chat, None, ASKED))
    assert retrieved == [Retrieved((), outcome)]
    assert cited == Cited((), outcome)
    assert outcome.lines(0) == [NO_PASSAGE]
    assert contents(prompts, ASKED)[-1] == NOT_COVERED
    assert not any(WALRUS in one.content for one in prompts[-1])
    assert len(model.texts) == 1
    _, answer = history.thread(chat)
    stored = answer.statistics[SEARCH_KEY]
    assert isinstance(stored, dict)
    assert stored["rejected"] == 1


@pytest.mark.parametrize(
    ("asked", "outcome", "instructed", "told"),
    [
        ("Where is my van?", SearchOutcome(texts=3), True, True),
        ("Where is the van?", SearchOutcome(texts=3), True, False),
        ("Where is the van?", SearchOutcome(texts=3, rejected=2), True, True),
        ("Where is my van?", SearchOutcome(texts=3, unindexed=1), True, False),
        ("Where is my van?", SearchOutcome(texts=3, too_long=True), True, False),
        ("Where is my van?", NOTHING_FOUND, True, False),
        ("Where is my van?", SearchOutcome(texts=3), False, False),
    ],
)
def test_what_was_searched_and_not_found_is_told(
    asked: str, outcome: SearchOutcome, instructed: bool, told: bool
) -> None:
    messages = [Message("system", "Be brief."), Message("user", asked)]
    prompt = with_passages(PassageForm(instructed=instructed), messages, (), outcome, asked)
    added = [Message("system", NOT_COVERED)] if told else []
    assert prompt == [messages[0], *added, messages[1]]


def test_a_question_about_ones_own_things_without_a_passage_is_told(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, model, prompts = engine_of(tmp_path)
    chat, asked = history.create_chat().id, "When does my passport expire?"
    _, cited, _ = answered(Assistant(engine, history, imports).answer(chat, None, asked))
    assert cited.outcome == SearchOutcome(texts=1)
    assert contents(prompts, asked)[-1] == NOT_COVERED
    assert model.texts == []


def test_passages_are_checked_until_one_is_sure_which_comes_first(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    best = "A giraffe keeps no telescopes, and how many umbrellas nobody knows."
    put(imports, "giraffe.md", best)
    engine, model, prompts = engine_of(tmp_path, stated=WALRUS)
    assistant, chat = Assistant(engine, history, imports), history.create_chat().id
    events = list(assistant.answer(chat, None, ASKED))
    (retrieved,), cited, _ = answered(iter(events))
    assert [one for one in events if isinstance(one, Checking)] == [Checking(1, 2), Checking(2, 2)]
    assert [one.file for one in retrieved.passages] == ["walrus.md", "giraffe.md"]
    assert cited.outcome == SearchOutcome(2, texts=2)
    assert model.texts == [
        as_read(f"giraffe.md\n{best}", ASKED),
        as_read(f"walrus.md\n{WALRUS}", ASKED),
    ]
    assert best in contents(prompts, ASKED)[-1]
    model.tells = lambda text: letters(best) in text
    events = list(assistant.answer(history.create_chat().id, None, ASKED))
    assert [one for one in events if isinstance(one, Checking)] == [Checking(1, 2)]
    assert len(model.texts) == 3, "the first is sure"


def test_the_next_in_the_ranking_are_searched_and_counted_where_no_leading_one_is_sure(
    tmp_path: Path, history: History, imports: ImportedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        put(imports, f"{number}.md", f"The giraffe keeps {number} umbrellas.")
    engine, model, _ = engine_of(tmp_path)
    engine.passage_form = PassageForm(max_passages=2, instructed=True)
    searched, next_best = list[int](), ImportedTexts.next_best

    def search(self: ImportedTexts, *given: Any) -> list[FoundPassage]:
        searched.append(len(model.texts))
        return next_best(self, *given)

    monkeypatch.setattr(ImportedTexts, "next_best", search)
    assistant = Assistant(engine, history, imports)
    events = list(assistant.answer(history.create_chat().id, None, ASKED))
    numbers = [(one.number, one.total) for one in events if isinstance(one, Checking)]
    assert numbers == [(1, 2), (2, 2), (3, 5), (4, 5), (5, 5)]
    assert len(set(model.texts)) == 5, "each passage once"
    assert searched == [2], "after those that lead"
    model.tells = lambda text: True
    answered(assistant.answer(history.create_chat().id, None, ASKED))
    assert searched == [2], "the first is sure"


def test_what_the_chat_may_answer_itself_is_not_searched_for_further(
    imports: ImportedTexts,
) -> None:
    put(imports, "giraffe.md", "The giraffe keeps many umbrellas.")
    (found, *_) = imports.next_best(ASKED, ())
    assert [one.file for one in imports.next_best(ASKED, [found])] != []
    assert imports.next_best(ASKED, [found], chat=["The giraffe keeps four telescopes."]) == []


def found_passages(count: int) -> list[FoundPassage]:
    """Passages of as many files."""
    return [
        FoundPassage(
            *("/notes", f"{number}.md", "", b"%d" % number, 0),
            chunk=Chunk("", 1, 1, f"text {number}"),
            score=0.0,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("odds", "files"),
    [
        ((-1.0, -2.0, -3.0, -1.0), []),
        ((-1.0, 0.5, -1.0, -1.0), [1, 0]),
        ((0.1, 0.5, -1.0, 0.7), [3, 1, 0]),
        ((-1.0, -1.0, 0.1, -1.0), [2, 0, 1]),
        ((-1.0, SURE, None, None), [1, 0]),
        ((SURE, None, None, None), [0, 1]),
    ],
)
def test_the_surest_come_first_and_leading_ones_stay(
    odds: Sequence[float | None], files: Sequence[int]
) -> None:
    passages = found_passages(len(odds))

    class Check:
        classifier = classifier()

        def log_odds(self, passage: str, question: str, stop: Stop) -> float:
            found = odds[int(passage.split("text ")[1])]
            assert found is not None, "a passage before it is sure"
            return found

    check = cast("PassageCheck", Check())
    events = answering(check, ASKED, passages[:2], lambda: passages[2:], lambda: False)
    stated = exhausted(events)
    assert [int(one.file.removesuffix(".md")) for one in stated] == files


def exhausted(events: Generator[object, None, T]) -> T:
    """What a generator returns."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            returned: T = end.value
            return returned


def test_the_chat_stays_in_the_kv_cache(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, model, _ = engine_of(tmp_path)
    assistant, chat = Assistant(engine, history, imports), history.create_chat().id
    list(assistant.answer(chat, None, "Hello!"))
    _, answer = history.thread(chat)
    target, cached = engine.target, list(engine.target.tokens)
    assert isinstance(target, CountingTarget)
    target.read, model.tells = 0, lambda text: list(target.tokens) != cached
    _, cited, finished = answered(assistant.answer(chat, answer.id, ASKED))
    assert cited.outcome.rejected == 1, "the chat was cached while it was checked"
    shared = common_prefix(cached, target.tokens)
    assert shared == len(render([Message("user", "Hello!")])) - 1, "an answer is marked otherwise"
    assert finished.statistics.cached_tokens == shared
    assert target.read == finished.statistics.prompt_tokens - shared


def test_a_follow_up_is_checked_with_what_it_follows(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, model, _ = engine_of(tmp_path, stated=WALRUS)
    assistant, chat = Assistant(engine, history, imports), history.create_chat().id
    answered(assistant.answer(chat, None, ASKED))
    _, answer = history.thread(chat)
    answered(assistant.answer(chat, answer.id, "and brass ones?"))
    assert model.texts[-1] == as_read(f"walrus.md\n{WALRUS}", f"{ASKED}\nand brass ones?")


def test_a_stopped_answer_is_continued_as_it_began(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, _, prompts = engine_of(tmp_path)
    assistant, chat = Assistant(engine, history, imports), history.create_chat().id
    with closing(assistant.answer(chat, None, ASKED)) as events:
        for event in events:
            if isinstance(event, Wrote):
                assistant.stop()
    _, answer = history.thread(chat)
    prompts.clear()
    _, cited, _ = answered(assistant.resume(answer.id))
    assert contents(prompts, ASKED)[-1] == NOT_COVERED
    assert cited.outcome == SearchOutcome(texts=1, rejected=1)


def test_the_check_can_be_interrupted_before_a_passage(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine, model, _ = engine_of(tmp_path)
    assistant, chat = Assistant(engine, history, imports), history.create_chat().id
    events = assistant.answer(chat, None, ASKED)
    for event in events:
        if isinstance(event, Checking):
            assistant.stop()
            break
    assert_interrupted(engine, list(events))
    assert model.texts == []


def test_the_check_can_be_interrupted_while_a_passage_is_read(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    put(imports, "giraffe.md", "A giraffe keeps no telescopes, and how many nobody knows.")
    engine, model, _ = engine_of(tmp_path)
    assistant, chat = Assistant(engine, history, imports), history.create_chat().id

    def stop_meanwhile(text: str) -> bool:
        assistant.stop()
        return False

    model.tells = stop_meanwhile
    assert_interrupted(engine, list(assistant.answer(chat, None, ASKED)))
    assert len(model.texts) == 1


def assert_interrupted(engine: Engine, events: Sequence[Event]) -> None:
    """Nothing was read or written, and nothing rejected that was not checked."""
    retrieved, cited, finished = answered(iter(events))
    (search,) = retrieved
    assert search.passages == ()
    assert search.outcome is not None
    assert (search.outcome.read, search.outcome.rejected) == (0, 0)
    assert cited.passages == ()
    assert finished.finish == "interrupted"
    assert not any(isinstance(event, Prefilling | Wrote) for event in events)
    assert isinstance(engine.target, CountingTarget)
    assert engine.target.read == 0


@pytest.mark.parametrize(
    "hindrance", ["nothing", "not learned", "cannot tell", "question", "layers", "damage"]
)
def test_where_nothing_is_checked_the_passages_are_used(
    tmp_path: Path, history: History, imports: ImportedTexts, hindrance: str
) -> None:
    engine, model, prompts = engine_of(tmp_path)
    answerability, asked, errors = engine.answerability, ASKED, []
    assert answerability is not None
    if hindrance == "nothing":
        engine.answerability = None
    elif hindrance == "not learned":
        answerability.path.unlink()
    elif hindrance == "cannot tell":
        write_classifier(answerability.path, classifier(auc=MIN_AUC - 0.01))
    elif hindrance == "question":
        asked += " " + "Please? " * (MAX_QUESTION // len("Please? "))
    elif hindrance == "layers":
        model.problem = "its layers cannot be read"
        errors = [f"passages are used unchecked: {model.problem}"]
    else:
        answerability.path.write_bytes(answerability.path.read_bytes()[:-50])
    for _ in range(2):
        chat = history.create_chat().id
        _, cited, _ = answered(Assistant(engine, history, imports).answer(chat, None, asked))
        assert [one.file for one in cited.passages] == ["walrus.md"]
        assert WALRUS in contents(prompts, asked)[-1]
    assert model.texts == []
    assert [str(error).split(" (")[0] for error in engine.errors] == errors, "each once"

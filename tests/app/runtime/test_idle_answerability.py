"""Learning whether passages state answers: the same however often it is interrupted."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import count, islice
from threading import Event as Flag

import numpy as np
import pytest

from app.conversation.imported_texts import ImportedTexts
from app.engine.answerability import END, Answerability
from app.engine.asked_notes import read_notes
from app.foreground import Foreground
from app.indexing.passage_index import update
from app.locations import Locations
from app.runtime import idle_answerability
from app.runtime.idle_answerability import every, learn_from_parts, learn_when_idle
from app.runtime.open_model import _check_learning, _idle_work
from datastores.chats.history import History
from datastores.errors import SpecchatError, StoreError
from datastores.library.documents import NOTES as PERSONAL
from datastores.library.documents import Document, Part, StoreDocument
from datastores.storage.files import WorkLock
from engines.answerability import write_classifier
from tests.app.runtime.answerability_child import NOTES, PART
from tests.app.scripted import scripted_engine
from tests.app.scripted_states import LAYER, ScriptedModel, classifier, letters, unexpected
from tests.waiting import TIMEOUT_S


class ChildHere:
    """Stands in for the child, in this process."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._arguments = arguments

    def __enter__(self) -> ChildHere:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[object]:
        learn_from_parts([str(one) for one in self._arguments])
        return iter(())

    def code(self) -> int:
        """It has succeeded."""
        return 0


@pytest.fixture(autouse=True)
def few_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = read_notes()
    monkeypatch.setattr(idle_answerability, "read_notes", lambda: notes)
    monkeypatch.setattr(idle_answerability, "NOTES", NOTES)
    monkeypatch.setattr(idle_answerability, "PART", PART)
    monkeypatch.setattr(idle_answerability, "ChildProcess", ChildHere)
    monkeypatch.setattr(idle_answerability, "pause_with", lambda wait: None)


@pytest.fixture
def answerability(locations: Locations) -> Answerability:
    return answerability_of(ScriptedModel(is_answered()), locations)


def answerability_of(model: ScriptedModel, locations: Locations) -> Answerability:
    """What is known of the model's states; nothing prevents the check."""
    return Answerability(model, locations.answerability, unexpected)


def is_answered() -> Callable[[str], bool]:
    """Whether a text ends with a question that its note answers."""
    ends = tuple(
        letters(END.format(question=question))
        for note in every(read_notes(), NOTES)
        for question in note.answered
    )
    return lambda text: text.endswith(ends)


def learned(answerability: Answerability, locations: Locations) -> bytes:
    """The classifier's file, learned undisturbed."""
    list(learn_when_idle(answerability, locations))
    return answerability.path.read_bytes()


def test_states_that_tell_give_a_reliable_classifier(
    answerability: Answerability, locations: Locations
) -> None:
    assert answerability.classifier is None
    learned(answerability, locations)
    found = answerability.classifier
    assert found is not None
    assert found.reliable
    assert found.layer == LAYER
    note = read_notes()[0]
    check = answerability.check
    assert check is not None
    for question in (*note.answered, *note.unanswered):
        odds = check.log_odds(note.excerpt, question, lambda: False)
        assert (odds >= check.classifier.minimum) is (question in note.answered)


def test_states_that_do_not_tell_give_one_that_is_not(locations: Locations) -> None:
    answerability = answerability_of(ScriptedModel(lambda text: len(text) % 2 == 0), locations)
    learned(answerability, locations)
    assert answerability.classifier is not None
    assert not answerability.classifier.reliable


def test_interrupted_it_learns_the_same(locations: Locations) -> None:
    known = answerability_of(ScriptedModel(is_answered()), locations)
    undisturbed = learned(known, locations)
    known.path.unlink()
    answered, texts, waiting = is_answered(), count(), list[Callable[[], None]]()

    def tells(text: str) -> bool:
        if next(texts) % 30 == 0:
            waiting.append(Foreground(locations.foreground).begin())
        return answered(text)

    sessions = 0
    while known.classifier is None:
        sessions += 1
        session = answerability_of(ScriptedModel(tells), locations)
        with closing(learn_when_idle(session, locations)) as work:
            for _ in islice(work, 12):
                while waiting:
                    waiting.pop()()
    assert sessions > 1
    assert known.path.read_bytes() == undisturbed


def test_what_was_saved_on_the_way_is_deleted(
    answerability: Answerability, locations: Locations
) -> None:
    work = learn_when_idle(answerability, locations)
    for _ in islice(work, PART + 2):
        pass
    work.close()
    folder = answerability.path.with_suffix(".parts")
    assert len(list(folder.iterdir())) == 1
    assert os.name == "nt" or not folder.stat().st_mode & 0o077
    learned(answerability, locations)
    assert not folder.exists()
    folder.mkdir()
    list(learn_when_idle(answerability, locations))
    assert not folder.exists(), "the session before ended after it had learned"


@pytest.mark.parametrize("damage", ["empty", "cut", "fewer questions", "fewer layers"])
def test_a_damaged_part_is_named_and_read_again(
    locations: Locations, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    wanted = learned(answerability_of(ScriptedModel(is_answered()), locations), locations)
    answerability = answerability_of(ScriptedModel(is_answered()), locations)
    answerability.path.unlink()
    work = learn_when_idle(answerability, locations)
    for _ in islice(work, 2 * PART + 2):
        pass
    work.close()
    folder = answerability.path.with_suffix(".parts")
    first, second = (folder / f"{start}.npy" for start in (0, PART))
    if damage.startswith("fewer"):
        states = np.load(first)
        np.save(first, states[1:] if damage == "fewer questions" else states[:, 1:])
    else:
        first.write_bytes(first.read_bytes()[: 0 if damage == "empty" else -1])
    assert learned(answerability, locations) == wanted
    assert str(first) in caplog.text
    assert str(second) not in caplog.text


def test_layers_that_cannot_be_read_are_tried_again_by_the_next_process(
    locations: Locations, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel()
    model.problem = "the layers of model.gguf cannot be read"
    answerability = answerability_of(model, locations)
    for _ in range(2):
        list(learn_when_idle(answerability, locations))
        assert answerability.check is None
    assert len(model.opened) == 1
    assert model.problem in caplog.text
    assert not answerability.path.exists()
    model.problem, model.tells = "", is_answered()
    learned(answerability_of(model, locations), locations)


def test_a_known_classifier_is_kept(answerability: Answerability, locations: Locations) -> None:
    locations.answerability.mkdir()
    write_classifier(answerability.path, classifier(auc=0.1))
    before = answerability.path.read_bytes()
    assert list(learn_when_idle(answerability, locations)) == []
    assert answerability.path.read_bytes() == before


def test_a_damaged_classifier_is_learned_again(
    answerability: Answerability, locations: Locations, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = learned(answerability, locations)
    answerability.path.write_bytes(wanted[:-60])
    assert learned(answerability, locations) == wanted
    assert str(answerability.path) in caplog.text


def test_one_process_learns_at_a_time(answerability: Answerability, locations: Locations) -> None:
    locations.answerability.mkdir()
    other = WorkLock(answerability.path.with_suffix(".lock"))
    assert other.acquire()
    list(learn_when_idle(answerability, locations))
    assert answerability.classifier is None
    other.release()
    learned(answerability, locations)
    assert answerability.classifier is not None


def test_a_process_of_its_own_learns_the_same(
    answerability: Answerability, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = learned(answerability, locations)
    answerability.path.unlink()
    monkeypatch.undo()
    monkeypatch.setattr(idle_answerability, "NOTES", NOTES)
    monkeypatch.setattr(idle_answerability, "PART", PART)
    monkeypatch.setattr(idle_answerability, "LEARNER", "tests.app.runtime.answerability_child")
    learned(answerability, locations)
    there = answerability.classifier
    answerability.path.write_bytes(here)
    assert there is not None
    assert answerability.classifier is not None
    assert there.weights == pytest.approx(answerability.classifier.weights, abs=1e-5)
    monkeypatch.setattr(idle_answerability, "LEARNER", "tests.app.runtime.no_such_child")
    answerability.path.unlink()
    with pytest.raises(StoreError, match=r"scripted-\w+\.npz failed \(exit code 1\)"):
        learned(answerability, locations)


def test_closing_it_ends_the_process(
    answerability: Answerability, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = Flag(), Flag()

    class Endless(ChildHere):
        def __iter__(self) -> Iterator[object]:
            begun.set()
            assert ended.wait(TIMEOUT_S)
            return iter(())

        def __exit__(self, *_: object) -> None:
            ended.set()

    monkeypatch.setattr(idle_answerability, "ChildProcess", Endless)
    with closing(learn_when_idle(answerability, locations)) as work:
        for _ in work:
            if begun.is_set():
                break
    assert ended.is_set()
    assert answerability.classifier is None


def test_a_place_that_cannot_be_written_is_named(
    answerability: Answerability, locations: Locations
) -> None:
    locations.answerability.write_text("a file")
    with pytest.raises(StoreError, match=r"scripted-\w+\.parts cannot be written"):
        list(learn_when_idle(answerability, locations))


@pytest.fixture
def on_mains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runtime.idle_work.on_battery", lambda: False)


@pytest.fixture
def imports(locations: Locations) -> Iterator[ImportedTexts]:
    """Without texts."""
    with closing(ImportedTexts.open(locations)) as opened:
        yield opened


def put_a_text(imports: ImportedTexts) -> None:
    document = Document("a.md", (Part(PERSONAL, "The walrus sings."),))
    imports._library.write([StoreDocument("/notes", "a.md", 0, document)])
    list(update(imports._library, imports._passages))


@pytest.mark.usefixtures("on_mains")
@pytest.mark.parametrize("lacking", ["imports", "texts", "check", "nothing"])
def test_it_is_learned_where_passages_are_checked(
    locations: Locations, imports: ImportedTexts, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    begun = list[Answerability]()

    def begin(answerability: Answerability, _: Locations) -> Generator[None]:
        begun.append(answerability)
        yield

    monkeypatch.setattr(idle_answerability, "learn_when_idle", begin)
    engine = scripted_engine(locations.data)
    answerability = answerability_of(ScriptedModel(), locations)
    engine.answerability = None if lacking == "check" else answerability
    if lacking != "texts":
        put_a_text(imports)
    given = None if lacking == "imports" else imports
    work = _check_learning(engine, locations, given, lambda progress, error: None)
    while work.slice():
        pass
    assert begun == ([answerability] if lacking == "nothing" else [])


@pytest.mark.usefixtures("on_mains")
def test_an_error_keeps_no_text_from_being_encoded(
    locations: Locations,
    history: History,
    imports: ImportedTexts,
    answerability: Answerability,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded, errors = list[bool](), list[SpecchatError | None]()

    def encode(*_: object, texts: bool) -> Generator[None]:
        encoded.append(texts)
        yield

    monkeypatch.setattr("app.runtime.idle_encoding.encode_when_idle", encode)
    locations.answerability.write_text("a file")
    put_a_text(imports)
    engine = scripted_engine(locations.data)
    engine.answerability = answerability

    def notify(_: object, error: SpecchatError | None) -> None:
        errors.append(error)

    encoding = _idle_work(engine, locations, history, imports, notify)
    learning = _check_learning(engine, locations, imports, notify)
    for _ in range(2):
        while any(work.slice() for work in (learning, encoding)):
            pass
        encoding.wake()
    assert encoded == [True, True]
    (error,) = errors
    assert "cannot be written" in str(error), "once"

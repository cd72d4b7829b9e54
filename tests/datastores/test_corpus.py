"""What may be learnt from: imported texts and open chats, never secrets, never private ones."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from datastores.chats.history import History
from datastores.chats.records import LOOPED, PROGRAMS, STREAMING
from datastores.corpus import Corpus, CorpusText
from datastores.library.documents import CHATS, CODE, NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from datastores.redaction import REDACTED


@pytest.fixture
def corpus(library: Library, history: History) -> Corpus:
    return Corpus(library, history)


def _passages(corpus: Corpus) -> set[CorpusText]:
    keys = corpus.difference(()).added
    return {passage for key in keys for passage in corpus.read(key)}


def test_texts_and_chats_are_read_alike(corpus: Corpus, library: Library, history: History) -> None:
    notebook = Document("t", (Part(NOTES, "words"), Part(CODE, "x = 1")))
    library.write([StoreDocument("/s", "f", 0, notebook)])
    chat = history.create_chat().id
    asked = history.add_message(chat, None, "user", "why?")
    history.add_message(chat, asked.id, "assistant", "so.", tokens=(5, 7), tokenizer="t")
    assert _passages(corpus) == {
        CorpusText(NOTES, "", "words"),
        CorpusText(CODE, "", "x = 1"),
        CorpusText(CHATS, "user", "why?"),
        CorpusText(CHATS, "assistant", "so.", (5, 7), "t"),
    }


def test_answers_to_programs_have_a_kind_of_their_own(corpus: Corpus, history: History) -> None:
    chat = history.create_chat(origin=PROGRAMS).id
    history.add_message(chat, None, "assistant", "so.", tokens=(5, 7), tokenizer="t")
    history.add_message(chat, None, "assistant", "password=Tr0ub4dor3xQ it is", tokens=(5,))
    assert _passages(corpus) == {
        CorpusText(PROGRAMS, "assistant", "so.", (5, 7), "t"),
        CorpusText(PROGRAMS, "assistant", f"password={REDACTED} it is"),
    }


def test_an_answer_counts_once_it_is_finished(corpus: Corpus, history: History) -> None:
    chat = history.create_chat().id
    answer = history.add_message(chat, None, "assistant", "half", finish=STREAMING)
    assert not _passages(corpus)
    history.extend_message(answer.id, "whole", (1,), {}, "stop")
    assert {passage.text for passage in _passages(corpus)} == {"whole"}


def test_an_answer_that_was_stopped_as_a_loop_stays_out(corpus: Corpus, history: History) -> None:
    chat = history.create_chat().id
    asked = history.add_message(chat, None, "user", "why?")
    answer = history.add_message(chat, asked.id, "assistant", "so so", finish=STREAMING)
    history.extend_message(answer.id, "so so so", (1,), {}, LOOPED)
    assert {passage.text for passage in _passages(corpus)} == {"why?"}
    assert len(corpus.messages_since(0)[0]) == 1


def test_private_chats_and_system_prompts_stay_out(corpus: Corpus, history: History) -> None:
    open_chat, private = history.create_chat().id, history.create_chat(private=True).id
    history.add_message(private, None, "user", "psst")
    history.add_message(open_chat, None, "system", "be kind")
    history.add_message(open_chat, None, "user", "hello")
    keys = corpus.difference(()).added
    assert {passage.text for passage in _passages(corpus)} == {"hello"}
    history.set_private(open_chat, True)
    assert corpus.difference(keys).removed == keys
    assert corpus.read(keys[0]) == ()


def test_a_secret_said_in_a_chat_stays_in_its_transcript(corpus: Corpus, history: History) -> None:
    chat = history.create_chat().id
    said = "password=hunter2 it is"
    history.add_message(chat, None, "assistant", said, tokens=(1, 2, 3), tokenizer="t")
    assert _passages(corpus) == {CorpusText(CHATS, "assistant", f"password={REDACTED} it is")}
    assert history.thread(chat)[0].content == said


def test_the_difference_is_what_to_add_and_to_remove(
    corpus: Corpus, library: Library, history: History
) -> None:
    pages = [Document("t", (Part(NOTES, text),)) for text in ("a", "b")]
    library.write([StoreDocument("/s", "f", number, page) for number, page in enumerate(pages)])
    history.add_message(history.create_chat().id, None, "user", "hello")
    everything = corpus.difference(()).added
    assert len(everything) == 3
    assert corpus.difference(everything).added == ()
    difference = corpus.difference([pages[0].digest, b"message 99"])
    assert len(difference.added) == 2
    assert difference.removed == (b"message 99",)


def test_keys_of_a_history_that_was_quarantined_are_none_of_the_next(
    corpus: Corpus, library: Library, history: History, tmp_path: Path
) -> None:
    history.add_message(history.create_chat().id, None, "user", "before")
    (before,) = corpus.difference(()).added
    with closing(History.open(tmp_path / "next.db")) as following:
        message = following.add_message(following.create_chat().id, None, "user", "after")
        assert message.id == 1
        after = Corpus(library, following)
        difference = after.difference([before])
        assert difference.removed == (before,)
        assert [after.read(key)[0].text for key in difference.added] == ["after"]
        assert after.read(before) == ()


def test_a_history_keeps_its_name(history: History) -> None:
    with closing(history.new_connection()) as beside:
        assert beside.name == history.name
    assert len(history.name) == 12


def test_changes_of_the_library_are_told_whoever_makes_them(
    corpus: Corpus, library: Library, history: History
) -> None:
    seen = [corpus.library_version()]
    history.create_chat()
    assert corpus.library_version() == seen[0]
    with closing(Library.open(library.store.path)) as other:
        other.write([StoreDocument("/s", "f", 0, Document("t", (Part(NOTES, "a"),)))])
    seen.append(corpus.library_version())
    library.write([StoreDocument("/s", "f", 1, Document("t", (Part(NOTES, "b"),)))])
    seen.append(corpus.library_version())
    assert len(set(seen)) == 3


def test_what_is_said_is_told_once_it_is_finished(corpus: Corpus, history: History) -> None:
    chat = history.create_chat().id
    history.add_message(chat, None, "user", "before")
    start = corpus.last_message()
    assert corpus.messages_since(start) == ([], start)
    asked = history.add_message(chat, None, "user", "question")
    answer = history.add_message(chat, asked.id, "assistant", "so", finish=STREAMING)
    later = history.add_message(chat, None, "user", "in another window")
    keys, after = corpus.messages_since(start)
    assert [corpus.read(key)[0].text for key in keys] == ["question", "in another window"]
    assert after == asked.id
    history.extend_message(answer.id, "so be it", (1,), {}, "stop")
    keys, after = corpus.messages_since(after)
    assert [corpus.read(key)[0].text for key in keys] == ["so be it", "in another window"]
    assert after == later.id
    assert corpus.messages_since(after) == ([], later.id)

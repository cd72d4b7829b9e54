"""The history's tables, and their rows as frozen dataclasses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from datastores.chats.figures import rename_figures
from datastores.storage.schema import Schema
from datastores.tokens import unpack

if TYPE_CHECKING:
    from sqlite_utils import Database

SYSTEM = "system"
USER = "user"
ASSISTANT = "assistant"

STREAMING = ""
"""`finish` of an answer that is still being generated."""
WHOLE = "stop"
"""`finish` of an answer that ended by itself, and of every message that is not an answer."""
INTERRUPTED = "interrupted"
"""`finish` of an answer that the user stopped, or whose process died."""
FAILED = "failed"
"""`finish` of an answer that an error ended."""
LOOPED = "repetition"
"""`finish` of an answer that was stopped because it repeated itself: nothing learns from it."""


PERSON, PROGRAMS = "", "programs"
"""`origin` of a chat: the person's, or answers to programs, which are listed nowhere with those."""


@dataclass(frozen=True, slots=True)
class Chat:
    """One chat: a tree of messages.

    Attributes:
        title: empty until it has one.
        private: stored, but never drafted from, indexed or trained on.
        system: the system prompt; empty for the model's own default.
        sampling: sampling settings that differ from the defaults, by name.
        active: id of the active leaf, whose path is shown; None in an empty chat.
        created, updated: seconds since the epoch.
        docs: how imported texts are used, and which; empty for the default.
        origin: who asks in it, `PERSON` or `PROGRAMS`. A chat of programs has answers alone, one
            after the other.
    """

    id: int
    title: str
    pinned: bool
    private: bool
    system: str
    sampling: Mapping[str, object]
    active: int | None
    created: float
    updated: float
    docs: str = ""
    origin: str = PERSON

    @property
    def tuned(self) -> bool:
        """Whether it has settings of its own."""
        return bool(self.system or self.sampling or self.docs)


@dataclass(frozen=True, slots=True)
class Attached:
    """A file or folder attached to a message.

    Attributes:
        name: file name (untrusted).
        size: in bytes, when it was attached.
        files: number of files; 1 unless it is a folder.
        start, end: place of its text within the message's, in characters.
    """

    name: str
    size: int
    files: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message; never changed once finished: edits and new answers become siblings.

    Attributes:
        parent: id of the message it follows; None for a first message.
        role: system, user or assistant.
        content: the original text (untrusted: sanitised where it is shown).
        tokens: the exact token ids in the context; empty if none were stored.
        model, tokenizer: fingerprints of what produced `tokens`; empty without tokens.
        finish: stop, length, context, interrupted, failed, or empty while it is being generated.
        statistics: figures of the answer, by name; empty for other messages.
        created: seconds since the epoch.
        attachments: the files in `content`, in order, before what the user typed.
    """

    id: int
    chat: int
    parent: int | None
    role: str
    content: str
    tokens: tuple[int, ...]
    model: str
    tokenizer: str
    finish: str
    statistics: Mapping[str, object]
    created: float
    attachments: tuple[Attached, ...] = ()


CHAT_COLUMNS = (
    "id, title, pinned, private, system, sampling, active, created, updated, docs, origin"
)
MESSAGE_COLUMNS = (
    "id, chat, parent, role, content, tokens, model, tokenizer, finish, statistics, created,"
    " attachments"
)


def chat_from_row(row: dict[str, Any]) -> Chat:
    """The chat in a row of `CHAT_COLUMNS`."""
    return Chat(
        **{
            **row,
            "pinned": bool(row["pinned"]),
            "private": bool(row["private"]),
            "sampling": json.loads(row["sampling"]),
        }
    )


def message_from_row(row: dict[str, Any]) -> StoredMessage:
    """The message in a row of `MESSAGE_COLUMNS`."""
    return StoredMessage(
        **{
            **row,
            "tokens": unpack(row["tokens"]),
            "statistics": json.loads(row["statistics"]),
            "attachments": tuple(Attached(**one) for one in json.loads(row["attachments"])),
        }
    )


def _chats_and_messages(db: Database) -> None:
    # AUTOINCREMENT: an id is never reused, so a window with the id of a deleted chat cannot write
    # into another one. Parents and leaves are checked at commit, so that a tree may be inserted or
    # deleted in any order. The composite key keeps a parent in the same chat.
    db.executescript(
        """
        CREATE TABLE chats (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            title TEXT NOT NULL,
            pinned INTEGER NOT NULL DEFAULT 0,
            private INTEGER NOT NULL DEFAULT 0,
            system TEXT NOT NULL DEFAULT '',
            sampling TEXT NOT NULL DEFAULT '{}',
            active INTEGER REFERENCES messages(id) ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED,
            created REAL NOT NULL,
            updated REAL NOT NULL,
            docs TEXT NOT NULL DEFAULT '',
            origin TEXT NOT NULL DEFAULT ''
        );
        CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            chat INTEGER NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
            parent INTEGER,
            role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
            content TEXT NOT NULL,
            tokens BLOB NOT NULL,
            model TEXT NOT NULL DEFAULT '',
            tokenizer TEXT NOT NULL DEFAULT '',
            finish TEXT NOT NULL,
            statistics TEXT NOT NULL DEFAULT '{}',
            writer TEXT NOT NULL DEFAULT '',
            created REAL NOT NULL,
            attachments TEXT NOT NULL DEFAULT '[]',
            UNIQUE (chat, id),
            FOREIGN KEY (chat, parent) REFERENCES messages(chat, id) DEFERRABLE INITIALLY DEFERRED
        );
        CREATE INDEX chats_by_origin ON chats(origin) WHERE origin <> '';
        CREATE INDEX chats_by_active ON chats(active);
        CREATE INDEX messages_by_parent ON messages(chat, parent);
        CREATE INDEX messages_unfinished ON messages(finish) WHERE finish = '';
        """
    )


def _full_text(db: Database) -> None:
    # The text is stored once, in `chats` and `messages`; the indexes hold the words of its search
    # form (`datastores.search_form`). An answer is indexed when it is finished, not at every
    # partial write.
    db.executescript(
        """
        CREATE VIRTUAL TABLE chats_text USING fts5 (
            title, content = '',
            tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'", prefix = '2 3'
        );
        CREATE VIRTUAL TABLE messages_text USING fts5 (
            content, content = '',
            tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'", prefix = '2 3'
        );
        CREATE TRIGGER chats_text_insert AFTER INSERT ON chats BEGIN
            INSERT INTO chats_text (rowid, title) VALUES (new.id, index_form(new.title));
        END;
        CREATE TRIGGER chats_text_delete AFTER DELETE ON chats BEGIN
            INSERT INTO chats_text (chats_text, rowid, title)
            VALUES ('delete', old.id, index_form(old.title));
        END;
        CREATE TRIGGER chats_text_update AFTER UPDATE OF title ON chats BEGIN
            INSERT INTO chats_text (chats_text, rowid, title)
            VALUES ('delete', old.id, index_form(old.title));
            INSERT INTO chats_text (rowid, title) VALUES (new.id, index_form(new.title));
        END;
        CREATE TRIGGER messages_text_insert AFTER INSERT ON messages WHEN new.finish <> '' BEGIN
            INSERT INTO messages_text (rowid, content) VALUES (new.id, index_form(new.content));
        END;
        CREATE TRIGGER messages_text_delete AFTER DELETE ON messages WHEN old.finish <> '' BEGIN
            INSERT INTO messages_text (messages_text, rowid, content)
            VALUES ('delete', old.id, index_form(old.content));
        END;
        CREATE TRIGGER messages_text_update AFTER UPDATE OF content, finish ON messages BEGIN
            INSERT INTO messages_text (messages_text, rowid, content)
            SELECT 'delete', old.id, index_form(old.content) WHERE old.finish <> '';
            INSERT INTO messages_text (rowid, content)
            SELECT new.id, index_form(new.content) WHERE new.finish <> '';
        END;
        """
    )


def _presets_and_erasures(db: Database) -> None:
    # AUTOINCREMENT: a request made while an earlier one is being completed needs a higher number.
    # Ids start from 1 in every history, so keys made of them contain the history's name.
    db.executescript(
        """
        CREATE TABLE presets (
            name TEXT PRIMARY KEY,
            system TEXT NOT NULL,
            sampling TEXT NOT NULL
        );
        CREATE TABLE erasures (wanted INTEGER PRIMARY KEY AUTOINCREMENT);
        CREATE TABLE history (name TEXT NOT NULL);
        INSERT INTO history VALUES (lower(hex(randomblob(6))));
        """
    )


def _history(db: Database) -> None:
    _chats_and_messages(db)
    _full_text(db)
    _presets_and_erasures(db)


SCHEMA = Schema(10, _history, lasting=frozenset({"chats", "messages"}), convert=rename_figures)


WORD_INDEXES = ("chats_text", "messages_text")
"""The history's FTS5 tables."""

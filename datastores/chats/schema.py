"""The history's schema, as numbered steps. A step that was released is never edited again."""

from __future__ import annotations

from sqlite_utils import Database


def _chats_and_messages(db: Database) -> None:
    # AUTOINCREMENT: an id is never used twice, so a window that still holds the id of a deleted
    # chat cannot write into another one. Parents and leaves are checked at commit: a whole tree is
    # inserted or deleted in any order. A parent lies in the same chat, by its composite key.
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
            updated REAL NOT NULL
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
            UNIQUE (chat, id),
            FOREIGN KEY (chat, parent) REFERENCES messages(chat, id) DEFERRABLE INITIALLY DEFERRED
        );
        CREATE INDEX chats_by_active ON chats(active);
        CREATE INDEX messages_by_parent ON messages(chat, parent);
        CREATE INDEX messages_unfinished ON messages(finish) WHERE finish = '';
        """
    )


def _full_text(db: Database) -> None:
    # The text stands once, in `chats` and `messages`; the indexes hold its words. An answer enters
    # when it is finished, not at every partial write.
    db.executescript(
        """
        CREATE VIRTUAL TABLE chats_text USING fts5 (
            title, content = 'chats', content_rowid = 'id',
            tokenize = "unicode61 remove_diacritics 2", prefix = '2 3'
        );
        CREATE VIRTUAL TABLE messages_text USING fts5 (
            content, content = 'messages', content_rowid = 'id',
            tokenize = "unicode61 remove_diacritics 2", prefix = '2 3'
        );
        CREATE TRIGGER chats_text_insert AFTER INSERT ON chats BEGIN
            INSERT INTO chats_text (rowid, title) VALUES (new.id, new.title);
        END;
        CREATE TRIGGER chats_text_delete AFTER DELETE ON chats BEGIN
            INSERT INTO chats_text (chats_text, rowid, title) VALUES ('delete', old.id, old.title);
        END;
        CREATE TRIGGER chats_text_update AFTER UPDATE OF title ON chats BEGIN
            INSERT INTO chats_text (chats_text, rowid, title) VALUES ('delete', old.id, old.title);
            INSERT INTO chats_text (rowid, title) VALUES (new.id, new.title);
        END;
        CREATE TRIGGER messages_text_insert AFTER INSERT ON messages WHEN new.finish <> '' BEGIN
            INSERT INTO messages_text (rowid, content) VALUES (new.id, new.content);
        END;
        CREATE TRIGGER messages_text_delete AFTER DELETE ON messages WHEN old.finish <> '' BEGIN
            INSERT INTO messages_text (messages_text, rowid, content)
            VALUES ('delete', old.id, old.content);
        END;
        CREATE TRIGGER messages_text_update AFTER UPDATE OF content, finish ON messages BEGIN
            INSERT INTO messages_text (messages_text, rowid, content)
            SELECT 'delete', old.id, old.content WHERE old.finish <> '';
            INSERT INTO messages_text (rowid, content)
            SELECT new.id, new.content WHERE new.finish <> '';
        END;
        """
    )


def _presets_and_erasures(db: Database) -> None:
    # AUTOINCREMENT: a wish noted while another one is being granted must not have its number.
    db.executescript(
        """
        CREATE TABLE presets (
            name TEXT PRIMARY KEY,
            system TEXT NOT NULL,
            sampling TEXT NOT NULL
        );
        CREATE TABLE erasures (wanted INTEGER PRIMARY KEY AUTOINCREMENT);
        """
    )


def _name(db: Database) -> None:
    # Ids count from 1 in every history: who keeps something by them needs to know which one it was.
    db.executescript(
        """
        CREATE TABLE history (name TEXT NOT NULL);
        INSERT INTO history VALUES (lower(hex(randomblob(6))));
        """
    )


HISTORY = (_chats_and_messages, _full_text, _presets_and_erasures, _name)
"""Version n of the history is what the first n of these make."""

WORD_INDEXES = ("chats_text", "messages_text")
"""The history's FTS5 tables."""

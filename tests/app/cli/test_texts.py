"""`import`, `imports`, `find` and `forget`: their output, and what remains on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.cli.main import DONE, FAILED, INTERRUPTED, run
from app.importing.session import record_imports
from app.locations import locate
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, PROGRAMS
from datastores.passages.embeddings import StoredVectors
from datastores.passages.store import PassageStore
from tests.datastores.dump import rows_of

EMBEDDING = "engines.llama.embedding.EmbeddingModel"
SENTENCE = "The walrus keeps seventeen brass telescopes."

WRONG_USAGE = 2

Specchat = Callable[..., int]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def specchat(data: Path) -> Specchat:
    """Runs the command on a data directory of its own."""
    return lambda *arguments: run([*map(str, arguments), "--data-dir", str(data)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two notes, and files that cannot be imported."""
    path = tmp_path / "notes"
    path.mkdir()
    (path / "a.md").write_text(f"# Animals\n\n{SENTENCE}\n")
    (path / "b.md").write_text("password=hunter2\n")
    (path / "bad.bin").write_bytes(b"\0\1\2")
    (path / "none.txt").touch()
    return path


def test_import_prints_a_summary(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert specchat("import", folder) == DONE
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].startswith("imported 2 documents, ")
    assert lines[lines.index("removed 1 password") + 1] == "    b.md"
    assert "skipped 1: binary" in lines
    assert "    bad.bin" in lines
    assert "skipped 1: empty" in lines
    assert lines[-1].startswith("indexed ")
    assert said.err == ""


def test_importing_again_says_that_nothing_changed(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    specchat("import", folder)
    capsys.readouterr()
    assert specchat("import", folder) == DONE
    lines = capsys.readouterr().out.splitlines()
    assert "unchanged 2 documents" in lines
    assert not any("ready" in line for line in lines)


def test_a_small_import_rebuilds_nothing(
    specchat: Specchat, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datastores.crest.store.CrestStore.rebuild", None)
    assert specchat("import", folder) == DONE
    (folder / "a.md").write_text("Another text.")
    assert specchat("import", folder) == DONE


def test_import_as_json_names_everything(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert specchat("import", folder, "--json") == DONE
    report = json.loads(capsys.readouterr().out)
    assert report["documents"] == 2
    assert report["redacted"] == 1
    assert report["tokens"] > 10
    assert report["skipped"] == {"binary": ["bad.bin"], "empty": ["none.txt"]}
    assert report["meaning"] == {"embedded": 2, "total": 2, "seconds_left": 0.0}


def test_an_import_is_found_in_other_words_at_once(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = folder / "garden.md"
    note.write_text("# Garden\n\nThe tomatoes were planted in the greenhouse on 3 May.\n")
    assert specchat("import", "--no-meaning", note) == DONE
    assert specchat("find", "vegetables grown") == DONE
    assert capsys.readouterr().err == "No match.\n"
    assert specchat("import", note) == DONE
    assert specchat("find", "vegetables grown") == DONE
    assert f"{note}:1" in capsys.readouterr().out


def test_without_an_embedding_model_nothing_is_said_of_meaning(
    specchat: Specchat, folder: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data.mkdir()
    (data / "config.toml").write_text('embedding = "off"\n')
    assert specchat("import", folder) == DONE
    assert "meaning" not in "".join(capsys.readouterr())
    assert specchat("import", folder, "--json") == DONE
    assert json.loads(capsys.readouterr().out)["meaning"] is None


def test_an_embedding_model_that_is_missing_does_not_stop_the_import(
    specchat: Specchat, folder: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data.mkdir()
    (data / "config.toml").write_text('embedding = "gone"\n')
    assert specchat("import", folder) == DONE
    assert capsys.readouterr().err.startswith("not indexed by meaning: ")


def test_what_takes_long_is_offered_and_done_when_asked_for(
    specchat: Specchat,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.cli.stores.MEASURED_S", 0.0)
    monkeypatch.setattr("app.cli.texts.SOON_S", 0.0)
    assert specchat("import", folder) == DONE
    (offer,) = (line for line in capsys.readouterr().out.splitlines() if "meaning" in line)
    assert offer.startswith("indexed 1 of 2 passages by meaning; the rest takes about ")
    assert offer.endswith(f"or run specchat import --meaning {folder}")
    assert specchat("import", "--no-meaning", folder) == DONE
    assert "meaning" not in capsys.readouterr().out
    assert specchat("import", "--meaning", folder, "--json") == DONE
    assert json.loads(capsys.readouterr().out)["meaning"]["embedded"] == 2


def test_progress_by_meaning_is_shown_with_the_time_left(
    specchat: Specchat, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("app.cli.output.StatusLine.show", lambda _, line: shown.append(line))
    assert specchat("import", folder) == DONE
    (first, last) = (line for line in shown if "meaning" in line)
    assert first.startswith("indexing by meaning: 1 of 2 passages · ")
    assert last == "indexing by meaning: 2 of 2 passages · 0 s left"


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_nothing_imported_is_a_failure_that_names_what_was_skipped(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    assert specchat("import", folder / "bad.bin", *flags) == FAILED
    said = capsys.readouterr()
    assert said.err == "specchat: nothing imported: binary (1)\n"
    assert "bad.bin" in said.out
    assert "imported 0" not in said.out


def test_names_of_files_cannot_reach_the_terminal_raw(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "evil\x1b[2J\nname.bin").write_bytes(b"\0")
    specchat("import", folder)
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "evil␛[2J name.bin" in said.out


def test_a_model_that_is_missing_does_not_stop_the_import(
    specchat: Specchat, folder: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert specchat("import", folder, "--model", folder / "no.gguf") == DONE
    said = capsys.readouterr()
    assert said.out.startswith("imported 2 documents")
    assert said.err.startswith("not indexed yet: ")
    with closing(PassageStore.open(locate(data).passages)) as passages:
        assert passages.text_count == 2, "passages need no model that answers"
        assert StoredVectors(passages).counts() == (2, 2)


@pytest.mark.parametrize(
    "phase",
    ["app.cli.texts.update_index", "engines.llama.embedding.EmbeddingModel.encode_passages"],
)
@pytest.mark.parametrize(
    ("signal", "code"), [(KeyboardInterrupt(), INTERRUPTED), (SystemExit(143), 143)]
)
def test_a_signal_that_stops_an_import_says_how_to_resume(
    specchat: Specchat,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    signal: BaseException,
    code: int,
    phase: str,
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise signal

    monkeypatch.setattr(phase, interrupted)
    try:
        ended = specchat("import", folder)
    except SystemExit as end:
        ended = int(str(end.code))
    assert ended == code
    assert "run the same command to resume" in capsys.readouterr().err


def test_a_watched_folder_is_listed_as_such_until_it_is_not(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert specchat("import", "--no-watch", folder) == DONE
    assert "watching" not in capsys.readouterr().out, "it never was"
    assert specchat("import", "--watch", folder) == DONE
    assert f"watching {folder}" in capsys.readouterr().out.splitlines()
    assert specchat("imports") == DONE
    assert ", watched" in capsys.readouterr().out
    assert specchat("import", "--no-watch", folder) == DONE
    assert f"no longer watching {folder}" in capsys.readouterr().out.splitlines()
    assert specchat("imports", "--json") == DONE
    assert json.loads(capsys.readouterr().out)["imports"][0]["watched"] is False


def test_imports_lists_what_was_imported(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert specchat("imports") == DONE
    assert capsys.readouterr().out == ""
    specchat("import", folder)
    capsys.readouterr()
    specchat("imports")
    assert capsys.readouterr().out.startswith(f"notes  {folder}  (2 documents, ")
    specchat("imports", "--json")
    (found,) = json.loads(capsys.readouterr().out)["imports"]
    assert found["path"] == str(folder)
    assert found["kinds"] == ["notes"]
    assert found["whole"] is True
    assert found["imported"] > 0


def test_imports_marks_incomplete_ones(
    specchat: Specchat, folder: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    specchat("import", folder)
    record_imports(data / "imported.json", [str(folder)], whole=False)
    capsys.readouterr()
    specchat("imports")
    assert "incomplete: import it again" in capsys.readouterr().out


def test_forget_leaves_no_byte_in_any_file(
    specchat: Specchat, folder: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = folder.parent / "kept.md"
    kept.write_text("Penguins keep umbrellas.")
    specchat("import", folder, kept)
    assert specchat("forget", folder) == DONE
    assert f"removed {folder}: 2 documents" in capsys.readouterr().out
    for file in data.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert SENTENCE.encode() not in content, file
            assert bytes(folder) not in content, file
    specchat("imports")
    assert capsys.readouterr().out.startswith(f"kept.md  {kept}  (1 document, ")


def test_import_forget_import_is_import(specchat: Specchat, folder: Path, data: Path) -> None:
    def rows() -> dict[str, object]:
        # The segments of a word index depend on the order of writes.
        return {
            file.name: {
                table: content
                for table, content in rows_of(file).items()
                if not table.startswith("chunks_index")
            }
            for file in data.rglob("*.db")
        }

    kept = folder.parent / "kept.md"
    kept.write_text("Penguins keep umbrellas, and penguins keep them dry.")
    specchat("import", kept)
    never = rows()
    assert {"library.db", "tokens.db", "crest.db"} <= never.keys()
    specchat("import", folder)
    once = rows()
    specchat("forget", folder)
    assert rows() == never
    specchat("import", folder)
    assert rows() == once != never


def test_forget_takes_the_path_as_it_was_typed(
    specchat: Specchat, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "link").symlink_to(folder)
    monkeypatch.chdir(folder.parent)
    for name in ("notes", "./notes/", "link"):
        assert specchat("import", "notes") == DONE
        assert specchat("forget", name) == DONE
        assert specchat("forget", name) == FAILED


def test_an_import_is_named_and_found_by_its_name(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = folder.parent / "work" / "notes"
    other.mkdir(parents=True)
    (other / "c.md").write_text(f"{SENTENCE} too\n")
    assert specchat("import", folder) == DONE
    assert specchat("import", other) == DONE
    capsys.readouterr()
    specchat("imports")
    names = [line.partition("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["notes", "work/notes"]
    assert specchat("import", other, "--name", "office") == DONE
    assert "named office" in capsys.readouterr().out.splitlines()
    for chosen, found in ((["office"], 1), (["NOTES"], 1), (["office", folder], 2)):
        options = [option for name in chosen for option in ("--import", name)]
        assert specchat("find", "telescopes", *options, "--json") == DONE
        assert len(json.loads(capsys.readouterr().out)["passages"]) == found
    assert specchat("import", other, "--name", "notes") == FAILED
    assert f"'notes' is the name of {folder}" in capsys.readouterr().err
    assert specchat("import", folder, other, "--name", "both") == FAILED
    assert specchat("forget", "office") == DONE
    assert capsys.readouterr().out.startswith(f"removed {other}")


@pytest.mark.parametrize("command", ["import", "forget"])
def test_a_damaged_history_is_reported(
    specchat: Specchat,
    folder: Path,
    data: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    specchat("import", folder)
    (data / "history.db").write_bytes(b"no database" * 1000)
    capsys.readouterr()
    assert specchat(command, folder) == DONE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"your chats were damaged and set aside as {data / 'history.db.corrupt-'}"
    )


def test_forgetting_an_import_whose_folder_is_gone(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    specchat("import", folder / "a.md")
    (folder / "a.md").unlink()
    assert specchat("forget", folder / "a.md") == DONE
    assert specchat("forget", "nowhere") == FAILED
    assert "no import 'nowhere'" in capsys.readouterr().err


def test_passages_are_found_without_a_model(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert specchat("import", folder) == DONE
    capsys.readouterr()
    assert specchat("find", "brass", "telescopes") == DONE
    assert capsys.readouterr().out.splitlines()[:2] == [f"{folder / 'a.md'}:1", "a > Animals"]
    assert specchat("find", "walrus", "--json", "--import", folder) == DONE
    (passage,) = json.loads(capsys.readouterr().out)["passages"]
    assert passage["text"] == f"# Animals\n\n{SENTENCE}"
    assert (passage["first_line"], passage["last_line"]) == (1, 3)


def test_no_match_and_an_unknown_import_are_reported(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert specchat("find", "giraffe") == DONE
    assert capsys.readouterr().err.startswith("No imports.")
    assert specchat("find", "walrus", "--import", folder) == FAILED
    assert "no import" in capsys.readouterr().err


def test_a_forgotten_import_is_not_found(
    specchat: Specchat, folder: Path, capsys: pytest.CaptureFixture[str], data: Path
) -> None:
    assert specchat("import", folder) == DONE
    assert specchat("find", "walrus") == DONE
    assert specchat("find", "giraffe") == DONE
    assert capsys.readouterr().err == "No match.\n"
    assert specchat("forget", folder) == DONE
    for file in data.rglob("passages.db*"):
        assert b"telescop" not in file.read_bytes()
    capsys.readouterr()
    assert specchat("find", "walrus") == DONE
    assert capsys.readouterr().out == ""


def test_answers_to_programs_are_listed_and_removed(
    specchat: Specchat, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locations = locate(data)
    locations.create()
    with closing(History.open(locations.history)) as history:
        chat = history.create_chat(origin=PROGRAMS).id
        history.add_message(chat, None, ASSISTANT, SENTENCE)
        own = history.create_chat().id
        assert specchat("imports") == DONE
        figures = f"1 answer to programs, {len(SENTENCE)} characters"
        assert capsys.readouterr().out.startswith(figures)
        assert specchat("imports", "--json") == DONE
        assert json.loads(capsys.readouterr().out)["programs"]["answers"] == 1
        assert specchat("forget") == specchat("forget", "notes", "--programs") == WRONG_USAGE
        assert specchat("forget", "--programs") == DONE
        assert "removed 1 answer to programs" in capsys.readouterr().out
        assert [one.id for one in history.all_chats()] == [own]
    assert not any(SENTENCE in str(row) for row in rows_of(locations.history))

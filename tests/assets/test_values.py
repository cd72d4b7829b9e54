"""Placeholders as answers write them, the values of a question in their place, and warnings."""

import re
from pathlib import Path
from random import Random

import pytest

from assets.recipe.destructive import warning
from assets.recipe.drawn_values import draw_value, name_values, redraw_values
from assets.recipe.material_files import read_tasks
from assets.recipe.pages import read_pages
from assets.recipe.placeholders import kind_of, marks_of, readable
from assets.recipe.values import VALUES, carry, find_values


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("du {{[-h|--human-readable]}} {{path/to/directory}}", "du --human-readable <directory>"),
        ("tar xf {{path/to/source.tar[.gz|.bz2|.xz]}}", "tar xf <source.tar>"),
        ("rm {{path/to/file1 path/to/file2 ...}}", "rm <file...>"),
        ("docker {{[ps|container ls]}} {{[-a|--all]}}", "docker ps --all"),
        ("ln {{[-s|--symbolic]}} /{{path/to/file}} {{link}}", "ln --symbolic <file> <link>"),
        ("ping {{example.com}}", "ping <host>"),
        ("curl {{https://example.com/x}}", "curl <url>"),
        ("ps --format '\\{\\{.ID\\}\\}'", "ps --format '{{.ID}}'"),
        ("ls", "ls"),
    ],
)
def test_commands_are_written_as_people_read_them(command: str, wanted: str) -> None:
    assert readable(command) == wanted


@pytest.mark.parametrize(
    ("question", "command", "wanted"),
    [
        ("who uses port 8080?", "lsof -i :{{port}}", "lsof -i :8080"),
        ("last 20 lines of a.log", "tail -n {{count}} {{path/to/file}}", "tail -n 20 a.log"),
        (
            "anything over 1 GB in /srv?",
            "find {{path/to/directory}} -size +{{100M}}",
            "find /srv -size +1G",
        ),
        (
            "unpack b.tgz into ~/x",
            "tar xf {{path/to/source.tar[.gz]}} -C {{path/to/directory}}",
            "tar xf b.tgz -C ~/x",
        ),
        ("wait 2 minutes", "sleep {{seconds}}", "sleep 120"),
        ("older than 90 days", "find . -mtime +{{30}}", "find . -mtime +90"),
        (
            "replace foo with bar in a.txt",
            "sed 's/{{old}}/{{new}}/' {{path/to/file}}",
            "sed 's/foo/bar/' a.txt",
        ),
        ("delete the user called wim", "userdel {{username}}", "userdel wim"),
        ("log in as bob on 10.0.0.7", "ssh {{username}}@{{remote_host}}", "ssh bob@10.0.0.7"),
        ("where are the jpg files?", "find . -name '{{*.ext}}'", "find . -name '*.jpg'"),
        ("log in to nas.lan as otto", "ssh {{username}}@{{remote_host}}", "ssh otto@nas.lan"),
        ("log in as another user", "su {{username}}", "su <username>"),
        ("which groups is otto in?", "id {{username}}", "id otto"),
        ("put otto into the group printers", "adduser {{user}} {{group}}", "adduser otto printers"),
        ("logs of the container redis", "docker logs {{name|id}}", "docker logs redis"),
        ("lines 12 to 18 of a.txt", "sed -n '{{5,10}}p' {{path/to/file}}", "sed -n '12,18p' a.txt"),
        ("install audacity on ubuntu", "apt install {{package}}", "apt install audacity"),
        ("install it on ubuntu", "apt install {{package}}", "apt install <package>"),
        (
            "sync ~/a to /mnt/b",
            "rsync {{path/to/source}} {{path/to/destination}}",
            "rsync ~/a /mnt/b",
        ),
        ("add me to the docker group", "adduser {{user}} {{group}}", "adduser <user> docker"),
        ("put it in ~/b", "mv {{path/to/source}} {{path/to/directory}}", "mv <source> ~/b"),
        ("move ~/a to ~/b", "mv {{path/to/source}} {{path/to/directory}}", "mv ~/a ~/b"),
        ("move the folder a1 to ~/b", "mv {{path/to/source}} {{path/to/directory}}", "mv a1 ~/b"),
        ("tag this commit as v1.2", "git tag {{tag_name}}", "git tag v1.2"),
        (
            "clone git@x.org:a/b.git",
            "git clone {{repository_location}}",
            "git clone git@x.org:a/b.git",
        ),
        ("look for deadbeef in /srv", "grep {{pattern}} {{directory}}", "grep deadbeef /srv"),
        ("look for files in /srv", "grep {{pattern}} {{directory}}", "grep <pattern> /srv"),
        ("copy a.c to b.c", "cp {{path/to/source}} {{path/to/target_file}}", "cp a.c b.c"),
        ("extract a tar.gz archive", "tar xf {{path/to/source.tar[.gz]}}", "tar xf <source.tar>"),
        ("is film.avi damaged?", "ffmpeg -i {{path/to/video}}.avi", "ffmpeg -i film.avi"),
        ("run the image redis:7", "docker run {{image:tag}}", "docker run redis:7"),
        ("erase a.txt and b.txt", "rm {{path/to/file1 path/to/file2 ...}}", "rm a.txt b.txt"),
        ("count from 5 to 15", "seq {{10}}", "seq <10>"),
        ("find the word invoice", 'locate "{{pattern}}"', 'locate "invoice"'),
        ("get it", 'locate "{{pattern}}"', 'locate "<pattern>"'),
        ("is the user logged in?", "who {{username}}", "who <username>"),
        ("how do I copy it?", "cp {{path/to/source}} {{path/to/target}}", "cp <source> <target>"),
    ],
)
def test_values_go_where_they_belong_and_nothing_else_is_filled_in(
    question: str, command: str, wanted: str
) -> None:
    assert carry(question, command) == wanted


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_a_value_that_is_named_is_found_again(kind: str) -> None:
    rng = Random(kind)
    marks = {"glob": "*.ext", "size": "100M", "device": "/dev/sdb", "url": "https://example.com"}
    mark = marks.get(kind, kind)
    found = 0
    for _ in range(20):
        value = draw_value(kind, mark, rng)
        shown = f'"{value}"' if kind == "message" else value
        found += bool(find_values(f"do it with {kind} {shown}"))
    assert found >= 18


def test_a_phrase_names_values_for_its_placeholders() -> None:
    command = "cp {{path/to/file.txt}} {{path/to/directory}}"
    named = [name_values("copy a file to a directory", command, Random(s)) for s in range(40)]
    filled = [carry(phrase, command) for phrase in named]
    assert all(phrase != "copy a file to a directory" for phrase in named)
    assert sum("<" not in each for each in filled) >= 5
    assert all("<" in each or phrase for each, phrase in zip(filled, named, strict=True))


def test_values_are_drawn_anew_where_the_command_takes_them() -> None:
    command = "chown {{user}} {{path/to/file}}"
    phrase = "give sabine.odt to the user mirko before 12 o'clock"
    drawn = {redraw_values(phrase, command, Random(s)) for s in range(20)}
    assert len(drawn) >= 15
    assert all(each.startswith("give ") and each.endswith(" before 12 o'clock") for each in drawn)
    assert all("<" not in carry(each, command) and ".odt" in each for each in drawn)


def test_a_mode_of_chmod_is_not_drawn_anew() -> None:
    phrase = redraw_values("set a.sh to 755", "chmod {{755}} {{path/to/file}}", Random(1))
    assert phrase.endswith(".sh to 755")
    assert "a.sh" not in phrase.split()


def test_a_name_that_few_tasks_mention_is_a_value() -> None:
    assert carry("add the user sabine", "useradd {{username}}") == "useradd sabine"
    assert carry("is the user logged in?", "who {{username}}") == "who <username>"


def test_marks_leave_options_out() -> None:
    assert marks_of("ls {{[-a|--all]}} {{path/to/directory}}") == ["path/to/directory"]
    assert kind_of("path/to/file_or_directory") == "path"
    assert kind_of("json|yaml") == ""


@pytest.mark.parametrize(
    ("command", "destroys"),
    [
        ("rm --recursive <directory>", True),
        ("git reset --hard", True),
        ("sudo dd if=<a> of=</dev/sdX>", True),
        ("history -c", True),
        ("kill -KILL <pid>", True),
        ("docker run --rm <image>", False),
        ("last reboot", False),
        ("git rm --cached <file>", False),
        ("git add --patch", False),
        ("ls --all", False),
        ("kill --list", False),
    ],
)
def test_what_destroys_something_is_warned_of(command: str, destroys: bool) -> None:
    assert bool(warning(command)) == destroys


def test_a_phrase_that_only_looks_for_something_destroys_nothing(checkout: Path) -> None:
    looks = re.compile(r"(find|list|show|search for|locate|see|which|where) (?!.*\b(and|then)\b)")
    asked = [
        (phrase, task.answer.command)
        for task in read_tasks(read_pages(checkout))
        for phrase in task.phrases
        if looks.match(phrase)
    ]
    assert len(asked) > 100
    assert not [pair for pair in asked if warning(readable(pair[1]))]


def test_what_was_named_for_a_placeholder_counts_instead() -> None:
    command = "cp {{path/to/source_file}} {{path/to/target_file}}"
    assert carry("copy a.txt", command) == "cp a.txt <target_file>"
    named = {"path/to/source_file": "b.txt"}
    assert carry("copy a.txt", command, named) == "cp b.txt <target_file>"
    assert carry("copy it", command, named) == "cp b.txt <target_file>"

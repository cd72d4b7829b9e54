"""A command is compared with the question: what it leaves out is named, and nothing else."""

from __future__ import annotations

import pytest

from app.conversation.left_out import left_out, remark


def command(text: str) -> str:
    return f"Use `x`. Do it:\n\n```sh\n{text}\n```\n"


@pytest.mark.parametrize(
    ("question", "code", "missing"),
    [
        (
            "find files bigger than 100MB and delete them",
            "find <path> -mtime -100",
            ["bigger than 100MB", "delete them"],
        ),
        ("files bigger than 100MB", "find . -size -100M", ["bigger than 100MB"]),
        ("files smaller than 5 GB", "find . -size +5G", ["smaller than 5 GB"]),
        ("delete logs older than 30 days", "find . -mtime -30 -delete", ["older than 30 days"]),
        ("delete logs older than 30 days", "find . -size +30M -delete", ["older than 30 days"]),
        ("what changed in the last 2 hours?", "find . -mtime -2", ["last 2 hours"]),
        ("pause for 3 minutes", "sleep 300", ["3 minutes"]),
        ("show the final 35 lines of kernel.log", "tail <file>", ["kernel.log", "35"]),
        ("ssh into pi.local on port 2222", "ssh <user>@<host> -p 22", ["pi.local", "2222"]),
        ("find *.tmp in /srv/data and count them", "find /srv/data -name '*.tmp'", ["count them"]),
        ("How do I delete all big files?", "find <path> -size +100M", ["delete"]),
        ("remove files older than 7 days", "find . -mtime +7", ["remove"]),
        ("Please kill the process on a port", "sudo lsof -i :<port>", ["kill"]),
    ],
)
def test_what_is_missing_is_named(question: str, code: str, missing: list[str]) -> None:
    assert left_out(question, command(code)) == missing
    assert all(f'"{part}"' in remark(question, command(code)) for part in missing)


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ("find files bigger than 100MB and delete them", "find . -size +100M -delete"),
        ("find files over 2 gigabytes", "find . -size +2048M"),
        ("make an empty file of 100 MB", "dd if=/dev/zero of=<file> bs=1M count=100"),
        ("what changed in the last 2 hours?", "find . -mmin -120"),
        ("delete logs older than 2 weeks", "find . -name '*.log' -mtime +14 -delete"),
        ("logs since 2 hours ago", 'journalctl --since "2 hours ago"'),
        ("pause for 3 minutes", "sleep 180"),
        ("shut down in 10 minutes", "shutdown 10"),
        ("untar site.tar.gz into ~/www", "tar xf site.tar.gz --directory ~/www"),
        ("unpack a tar.gz", "tar xf <source.tar.gz>"),
        ("give me 8 lines of poem.txt", "head --lines 8 poem.txt"),
        ("sort the .csv files and remove those", "rm *.csv"),
        ("open port 8080/tcp with node.js on python3", "ufw allow 8080/tcp"),
        ("convert a.mp3 to mp4 in 4k", "ffmpeg -i a.mp3 <out.mp4>"),
        ("How do I delete all big files?", "find . -size +100M -exec rm {} +"),
        ("remove duplicate lines", "sort --unique <file>"),
        ("delete a branch", "git branch --delete <name>"),
        ("delete old kernels", "ls /boot\napt autoremove"),
        ("find files that I can delete", "find . -empty"),
        ("count files", "find . -type f | wc --lines"),
        ("", "ls"),
    ],
)
def test_what_is_there_is_not(question: str, code: str) -> None:
    assert left_out(question, command(code)) == []
    assert remark(question, command(code)) == ""


def test_an_answer_without_a_command_leaves_nothing_out() -> None:
    assert left_out("files bigger than 100MB", "I only know shell commands.") == []

"""What is generated of the pages for people. `python -m tests.readme` writes it, test_docs checks.

Owns three blocks, each between comments in the page beside the code that it describes: the help of
the commands, the keys of the interface, and the settings with their docstrings and defaults.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path

import click

from app.cli.main import specchat
from app.config import Config
from app.interface.keymap import Keymap
from app.interface.scopes import SCOPES

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
WIDTH = 80


def pages() -> list[Path]:
    """Every page for people, in every folder of the program."""
    folders = ("app", "assets", "datastores", "engines")
    return [*ROOT.glob("*.md"), *(p for name in folders for p in (ROOT / name).rglob("README.md"))]


def generated() -> dict[Path, tuple[str, Callable[[], str]]]:
    """Page → the name of its generated block, and what makes it."""
    return {
        ROOT / "app" / "cli" / "README.md": ("help", help_block),
        ROOT / "app" / "interface" / "README.md": ("keys", keys_block),
        ROOT / "app" / "README.md": ("settings", settings_block),
    }


def with_block(text: str, name: str, block: str) -> str:
    """A page's text with the block of that name as it has to be.

    Raises:
        ValueError: the page has no comments for it.
    """
    before, start, rest = text.partition(f"<!-- {name} -->")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not end:
        raise ValueError(f"no <!-- {name} --> … <!-- /{name} -->")
    return f"{before}{start}\n{block}\n{end}{after}"


def help_block() -> str:
    """The help of every command, in the order of the top-level help."""
    names = specchat.context_settings["help_option_names"]
    with click.Context(
        specchat, info_name="specchat", terminal_width=WIDTH, help_option_names=names
    ) as context:
        return "\n\n".join(f"```\n{text.rstrip()}\n```" for text in _helps(context))


def keys_block() -> str:
    """Every key of the interface, from the same table as its help screen."""
    lines = ["| where | key | what it does | name |", "|---|---|---|---|"]
    for where, commands in Keymap(SCOPES).by_scope():
        for name, keys, title in commands:
            lines.append(f"| {where} | {keys} | {title} | `{name}` |")
            where = ""
    return "\n".join(lines)


def settings_block() -> str:
    """All settings at their defaults, as a commented config.toml."""
    return "\n".join(["```toml", *_settings(Config()), "```"])


def _helps(context: click.Context) -> list[str]:
    command = context.command
    texts = [command.get_help(context)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            with click.Context(
                below, parent=context, info_name=name, terminal_width=WIDTH
            ) as inner:
                texts += _helps(inner)
    return texts


def _settings(config: object) -> list[str]:
    """Plain settings first: what stands below a table's heading would belong to the table."""
    assert is_dataclass(config)
    notes, lines, tables = _docstrings(type(config)), [], []
    for field in fields(config):
        value = getattr(config, field.name)
        note = [f"# {notes[field.name]}"] if field.name in notes else []
        if isinstance(value, Mapping):
            tables += ["", *note, f"[{field.name}]"]
        elif is_dataclass(value):
            tables += ["", *note, f"[{field.name}]", *_settings(value)]
        else:
            lines += [*note, f"{field.name} = {json.dumps(value)}"]
    return [*lines, *tables]


def _docstrings(settings: type) -> dict[str, str]:
    """Field → the string that stands under it in the source."""
    tree = ast.parse(inspect.getsource(settings))
    assert isinstance(tree.body[0], ast.ClassDef)
    body = tree.body[0].body
    notes = {}
    for entry, below in pairwise(body):
        if not (isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            notes[entry.target.id] = " ".join(str(below.value.value).split())
    return notes


if __name__ == "__main__":
    for page, (name, make) in generated().items():
        page.write_text(with_block(page.read_text(), name, make()))

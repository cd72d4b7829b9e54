"""What is written for people is true: help, settings, links and the commands to begin with."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

from app.config import Config, load_config
from tests.readme import README, settings_block, with_generated_parts

ROOT = README.parent
QUICK_START = "pip install -e . && specchat"
TEST_COMMAND = "pip install -e '.[test]' && pytest"


def test_the_generated_parts_of_the_readme_are_current() -> None:
    text = README.read_text()
    assert text == with_generated_parts(text), "run: python -m tests.readme"


def test_the_readme_s_settings_are_a_valid_file_of_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(settings_block().strip("`").removeprefix("toml"))
    assert load_config(path) == Config()
    assert set(tomllib.loads(path.read_text())) == {field.name for field in fields(Config)}


def test_the_readme_begins_with_the_two_commands() -> None:
    lines = [line.strip() for line in README.read_text().splitlines()]
    assert QUICK_START in lines
    assert TEST_COMMAND in lines


def test_the_checks_call_the_readme_s_test_command() -> None:
    assert TEST_COMMAND in (ROOT / ".ci" / "run").read_text().splitlines()


def test_links_lead_to_files() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text()):
            assert (ROOT / target).exists(), f"{name} links to {target}"


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = sum(project["optional-dependencies"].values(), project["dependencies"])
    names = {re.split(r"[<>=\[]", requirement)[0] for requirement in needed} - {project["name"]}
    reasons = re.findall(r"^- `([\w-]+)`: ", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert sorted(reasons) == sorted(names)

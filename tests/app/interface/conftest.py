"""An application over a scripted assistant, and helpers that wait for other threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from textual._wait import wait_for_idle
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.events import Key
from textual.notifications import Notification
from textual.pilot import Pilot

from app.conversation import session_statistics
from app.engine.engine import Engine
from app.importing.events import Event as ImportEvent
from app.interface.app import Specchat
from app.interface.chat import chat_list
from app.interface.chat.conversation import Conversation
from app.interface.chat.prompt import Prompt
from app.interface.keymap import Keymap
from app.interface.scopes import SCOPES
from app.locations import locate
from app.models.discovery import embedded
from app.runtime.model_thread import Model
from datastores.chats.history import History
from datastores.errors import SpecchatError
from engines.draft_tree import CHATS, PROMPT, RECYCLE
from tests.app.interface.imports.scripted import ScriptedImport
from tests.app.interface.scripted import Script, ScriptedAssistant, passes_of
from tests.app.models.conftest import home, hub, others
from tests.waiting import TIMEOUT_S

__all__ = ["home", "hub", "others"]
"""Fixtures of every test; `home` hides the models on this machine."""

ANSWER = """You can **copy a directory** with everything in it:

```bash
cp -r source/ target/   # a trailing slash matters
```

- `-r` copies directories recursively
- `-v` prints what is being done, file by file

If the target exists, the source is copied *into* it."""

SCRIPT = Script(passes_of(ANSWER, [CHATS, CHATS, PROMPT, CHATS, RECYCLE], 3))
PLAIN = Script(passes_of("an answer of some words", [CHATS], 2))

Wait = Callable[[Callable[[], object]], Awaitable[None]]
Act = Callable[[Pilot[None]], Awaitable[None]]
Compare = Callable[..., bool]

SIZES = [(80, 24), (160, 50)]
"""Columns and lines of a small terminal, and of a large one."""


@dataclass
class Stage:
    """An application about to run, and the scripted parts behind it.

    Attributes:
        fails: raised instead of loading the model.
        gate: called before a model is loaded.
        refused: raised instead of loading the model at that path.
        opened: paths of all models requested so far; None for the first one.
        closed: names of the models that were closed.
        engine: engine of the models, if any.
        first: whether this is the first launch.
        hint: hint about the first model.
        asks: placeholder of the empty prompt.
        keys: remapped keys, by name.
        listens: whether commands can use the model.
    """

    history: History
    scripts: list[Script] = field(default_factory=lambda: [SCRIPT])
    theme: str = "specchat-dark"
    fails: SpecchatError | None = None
    gate: Callable[[], object] = lambda: None
    keys: Mapping[str, str] = field(default_factory=dict)
    refused: dict[str, SpecchatError] = field(default_factory=dict)
    opened: list[str | None] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    first: bool = False
    engine: Engine | None = None
    hint: str = "It knows commands."
    asks: str = ""
    listens: bool = False

    def __post_init__(self) -> None:
        self.assistant = ScriptedAssistant(self.history.new_connection(), self.scripts)
        self.locations = locate(self.history.store.path.parent)
        if not self.first:
            self.locations.offered.touch()
        keymap = Keymap(SCOPES, self.keys)
        self.app = Specchat(
            self.history,
            self.locations,
            self._open,
            self.theme,
            keymap=keymap,
            listens=self.listens,
        )

    @property
    def conversation(self) -> Conversation:
        return self.app.chat_screen.conversation

    def _open(self, choice: str | None) -> Model:
        self.opened.append(choice)
        self.gate()
        if self.fails is not None:
            raise self.fails
        if choice in self.refused:
            raise self.refused[choice]
        path = Path(choice) if choice is not None else embedded()
        name = path.stem if path != embedded() else "small helper"
        hint = self.hint if path == embedded() else ""
        return Model(
            name,
            hint,
            self.assistant,
            lambda: self.closed.append(name),
            self.engine,
            path,
            asks=self.asks if path == embedded() else "",
        )


Make = Callable[..., Stage]
"""The type of the fixture `stage`."""


@pytest.fixture(autouse=True, scope="session")
def styles_parsed_once() -> Iterator[None]:
    """Parse the style sheets once: that is a quarter of the start of an application."""
    parse, parsed = Stylesheet._parse_rules, dict[object, list[RuleSet]]()

    def parse_once(self: Stylesheet, css: str, **place: Any) -> list[RuleSet]:
        key = (css, *sorted(place.items()), frozenset(self._variables.items()))
        if key not in parsed:
            parsed[key] = parse(self, css, **place)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Stylesheet, "_parse_rules", parse_once)
        yield


async def settle() -> None:
    """Return once all messages are handled.

    Other threads, processes and timers need `until`.
    """
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:
        await asyncio.sleep(0)  # continues after everything that is ready to run now


@pytest.fixture(autouse=True, scope="session")
def pilots_settle() -> Iterator[None]:
    """Make pilots continue only when the application has settled.

    Textual's own continue when the process has used little processor time for 20 ms, which on a
    busy machine also happens with messages still pending.
    """
    wait_for_screen = Pilot._wait_for_screen

    async def wait_and_settle(pilot: Pilot[Any], timeout: float = TIMEOUT_S) -> bool:
        processed = await wait_for_screen(pilot, timeout)
        await settle()
        return processed

    async def idle_and_settle(*limits: float) -> None:
        await wait_for_idle(*limits)
        await settle()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Pilot, "_wait_for_screen", wait_and_settle)
        for module in ("textual.app", "textual.pilot"):
            patched.setattr(f"{module}.wait_for_idle", idle_and_settle)
        yield


@pytest.fixture(autouse=True, scope="session")
def notices_stay() -> Iterator[None]:
    """Keep notifications from expiring, since a slow test would miss short ones."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Notification, "has_expired", False)
        yield


@pytest.fixture(autouse=True)
def one_trend_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the trend of the panel as one bar, however the answers fall on the clock."""
    monkeypatch.setattr(session_statistics, "TREND_SECONDS", 1e12)


@pytest.fixture(autouse=True)
def fixed_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix the times in the list of chats."""
    monkeypatch.setattr(chat_list, "age", lambda then, now: "09:41")


@pytest.fixture(autouse=True)
def no_clipboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests away from the real clipboard."""
    monkeypatch.setenv("SSH_TTY", "/dev/none")
    monkeypatch.delenv("TMUX", raising=False)


@pytest.fixture
def stage(history: History, unhurried_close: None) -> Iterator[Make]:
    """Makes applications over one history."""
    stages: list[Stage] = []

    def make(*scripts: Script, **chosen: object) -> Stage:
        given = {"scripts": list(scripts)} if scripts else {}
        stages.append(Stage(history, **given, **chosen))  # type: ignore[arg-type]
        return stages[-1]

    yield make
    for made in stages:
        made.app.leave()
        made.assistant.history.close()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedImport]:
    """Replaces imports by a scripted one."""

    def make(
        *batches: list[ImportEvent], fails: SpecchatError | None = None, holds: bool = False
    ) -> ScriptedImport:
        script = ScriptedImport(*batches, fails=fails, holds=holds)
        monkeypatch.setattr("app.interface.imports.tasks.import_in_child", script)
        return script

    return make


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    """Let the application run until `condition` holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        await pilot.pause(0.01)
    await pilot.pause()


async def answered(pilot: Pilot[None], stage: Stage) -> None:
    """Wait until no turn is in progress."""
    await until(pilot, lambda: stage.conversation.turn is None)


async def ask(pilot: Pilot[None], stage: Stage, text: str) -> None:
    """Type `text`, send it, and wait for the whole answer."""
    await send(pilot, stage, text)
    await until(pilot, lambda: text in stage.assistant.asked)
    await answered(pilot, stage)


async def send(pilot: Pilot[None], stage: Stage, text: str) -> None:
    """Paste `text` into the prompt and press Enter."""
    await type_in(pilot, stage, text)
    await pilot.press("enter")


async def type_in(pilot: Pilot[None], stage: Stage, text: str) -> None:
    """Paste `text` into the prompt."""
    stage.conversation.prompt.insert(text)
    await pilot.pause()


async def burst(pilot: Pilot[None], *keys: str) -> None:
    """Press keys without waiting until each is handled, as a busy terminal does."""
    for key in keys:
        pilot.app.post_message(Key(key, key if len(key) == 1 else None))
    await pilot.pause()


def shown(stage: Stage) -> str:
    """The text of the laid-out part of the transcript."""
    transcript = stage.conversation.transcript
    return "\n".join(row.text for row in transcript.rows)


async def ready(pilot: Pilot[None], stage: Stage) -> None:
    """Wait until there is a screen, since snapshots begin with the application."""
    await until(pilot, lambda: stage.conversation.query(Prompt))
    await until(pilot, lambda: stage.conversation.topbar.model)


def loaded(stage: Stage) -> Act:
    """Wait until there is a screen, before a snapshot."""

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, stage)

    return act


def suggested(stage: Stage) -> list[str]:
    """Suggestions for the word at the cursor; none while the list is outdated."""
    prompt = stage.conversation.prompt
    return [one.text for one in prompt.suggestions._all] if prompt.completion.is_open else []


def notices(stage: Stage) -> list[str]:
    """Notifications, oldest first."""
    return [notification.message for notification in stage.app._notifications]

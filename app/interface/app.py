"""The Textual application: themes, keymap, clipboard, start-up and shutdown of the interface."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from textual import events, on, work
from textual.app import App
from textual.binding import BindingType
from textual.notifications import SeverityLevel
from textual.theme import Theme

from app.config import Options, load_config, write_setting
from app.indexing.corpus_index import IndexingProgress
from app.interface.chat import copy
from app.interface.commands.palette import CommandsProvider
from app.interface.keymap import Keymap
from app.interface.messages import (
    AnswerEnded,
    ChatShown,
    CommandsAnswered,
    IdleChanged,
    IndexerChanged,
    LearningChanged,
)
from app.interface.scopes import ALWAYS, SCOPES
from app.interface.screen import ChatScreen
from app.interface.terminal import (
    KEEP_TITLE,
    RESTORE_TITLE,
    AnswerNotice,
    is_terminal_gone,
    recognise_alt_enter,
    restore_only_after_stop,
    title_sequence,
)
from app.interface.text_inputs import as_pressed
from app.interface.themes import DARK, THEMES, muted_variables, theme_variables
from app.locations import Locations, locate
from app.runtime.demo import DEMO_MODEL, DemoStage
from app.runtime.engine_socket import EngineSocket
from app.runtime.model_thread import Model, OpenModel
from app.runtime.open_model import open_model
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.errors import InputError, SpecchatError

if TYPE_CHECKING:
    from app.runtime.idle_encoding import EncodingProgress
    from app.runtime.learning import LearningNews

ENDING = () if sys.platform == "win32" else (signal.SIGTERM, signal.SIGHUP)
"""Signals on which the interface stores the unsent prompts and exits."""

INTERFACE_DIR = Path(__file__).parent
THEME_HINT = "Press {palette} and choose “Change theme” to see them."


class Specchat(App[None], inherit_bindings=False):
    """The application around `ChatScreen`."""

    TITLE = "specchat"
    BINDINGS: ClassVar[list[BindingType]] = ALWAYS
    CSS_PATH: ClassVar[list[str | PurePath]] = sorted(INTERFACE_DIR.rglob("*.tcss"))
    COMMANDS = {CommandsProvider}  # noqa: RUF012

    def __init__(
        self,
        history: History,
        locations: Locations,
        open_model: OpenModel,
        theme: str = DARK.name,
        keep_theme: Callable[[str], None] = lambda theme: None,
        keymap: Keymap | None = None,
        stage: DemoStage | None = None,
        notice: AnswerNotice | None = None,
        *,
        listens: bool = False,
    ) -> None:
        """Args:
        keep_theme: called with the name of each theme the user chooses.
        stage: runs the demonstration.
        notice: how to notify of answers; by default not at all.
        listens: whether commands (`specchat ask`) can use the open model.
        """
        super().__init__()
        self.keymap = keymap or Keymap(SCOPES)
        self.set_keymap(self.keymap.overrides)
        for own in THEMES:
            self.register_theme(own)
        self._wanted_theme = theme
        self.theme = theme if theme in self.available_themes else DARK.name
        # Animations cost processor time that the model needs.
        self.animation_level = "none"
        self._keep_theme = keep_theme
        self._notice = notice or AnswerNotice()
        self._shown = ("", False)
        self._stage = stage
        self.chat_screen = ChatScreen(history, locations, open_model, stage)
        self._socket = (
            EngineSocket(
                locations, self.chat_screen.conversation.model_thread, self.commands_answered
            )
            if listens
            else None
        )
        self._typed_early: list[events.Event] | None = []

    async def on_event(self, event: events.Event) -> None:
        """Buffer keys that are typed before a box has the focus; Textual would drop them.

        Later, text that is typed on the chat screen goes to the prompt.
        """
        if isinstance(event, events.InputEvent | events.Paste):
            self.chat_screen.conversation.model_thread.touch()
        typed = isinstance(event, events.Key | events.Paste) and not event.is_forwarded
        if typed and self._typed_early is not None:
            self._typed_early.append(event)
            return
        if typed and self.screen is self.chat_screen:
            self.chat_screen.conversation.claim_typing(event)
        await super().on_event(event)

    async def on_descendant_focus(self) -> None:
        """Replay the buffered keys when the first box gets the focus."""
        early, self._typed_early = self._typed_early, None
        for event in as_pressed(early or ()):
            await super().on_event(event)

    def on_mount(self) -> None:
        for number in ENDING:
            asyncio.get_running_loop().add_signal_handler(number, self._end, 128 + number)
        restore_only_after_stop(self._driver)
        recognise_alt_enter()
        self.theme_changed_signal.subscribe(self, self._theme_chosen)
        self.app_suspend_signal.subscribe(self, lambda _: self._write(RESTORE_TITLE))
        self.app_resume_signal.subscribe(self, lambda _: self._restore())
        self._show_title()
        if self._socket is not None:
            try:
                self._socket.open()
            except SpecchatError as error:
                self.chat_screen.conversation.show_error(error)
        if self._wanted_theme not in self.available_themes:
            wanted = one_line(self._wanted_theme, 40)
            message = f"No theme is called “{wanted}”. {self.keymap.fill(THEME_HINT)}"
            self.notify(message, severity="error", markup=False, timeout=15)

    def _theme_chosen(self, theme: Theme) -> None:
        try:
            self._keep_theme(theme.name)
        except SpecchatError as error:
            self.chat_screen.conversation.show_error(error)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a notification, unless the same one is shown already."""
        if all(shown.message != message for shown in self._notifications):
            super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    @on(ChatShown)
    def _chat_shown(self, event: ChatShown) -> None:
        shown = event.title, event.private
        if shown != self._shown:
            self._shown = shown
            self._write(title_sequence(event.title, private=event.private))

    def _show_title(self) -> None:
        """Save the terminal's title, and replace it by the chat's."""
        title, private = self._shown
        self._write(KEEP_TITLE + title_sequence(title, private=private))

    def _restore(self) -> None:
        """Redraw everything after the program was stopped."""
        self._show_title()
        self.refresh(layout=True)

    @on(AnswerEnded)
    def _answer_ended(self, event: AnswerEnded) -> None:
        if self._notice.is_due(event.seconds, focused=self.app_focus):
            flags = {"private": event.private, "failed": event.failed}
            self._write(self._notice.sequence(event.title, os.environ, **flags))

    def exit(
        self, result: None = None, return_code: int = 0, message: RenderableType | None = None
    ) -> None:
        """Store the unsent prompts, and exit."""
        try:
            self.chat_screen.keep_unsent()
        except SpecchatError as error:
            message = one_line(str(error), 400)
        self._write(RESTORE_TITLE)
        super().exit(result, return_code, message)

    def _end(self, code: int) -> None:
        if is_terminal_gone():
            # Textual's output thread died with the terminal, and a normal exit waits for it.
            try:
                self.chat_screen.keep_unsent()
                self.leave()
            finally:
                if self._stage is not None:
                    self._stage.remove()
                os._exit(code)
        self.exit(return_code=code)

    def get_default_screen(self) -> ChatScreen:
        return self.chat_screen

    def get_css_variables(self) -> dict[str, str]:
        return {**super().get_css_variables(), **muted_variables(self.current_theme)}

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return theme_variables(dark=self.current_theme.dark)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy with a clipboard program if one is installed, else through the terminal."""
        self._clipboard = text
        self._copy_out(text)

    @work(thread=True, group="clipboard")
    def _copy_out(self, text: str) -> None:
        """Runs in a thread, since a clipboard program can hang."""
        if not copy.copy_with(text, copy.clipboard_commands(os.environ)):
            self.call_from_thread(self._write, copy.osc52_sequence(text, os.environ))

    def _write(self, sequence: str) -> None:
        if self._driver is not None:
            self._driver.write(sequence)

    def indexer_changed(
        self, progress: IndexingProgress | None, error: SpecchatError | None
    ) -> None:
        """Show the indexer's progress; from any thread."""
        self.chat_screen.post_message(IndexerChanged(progress, error))

    def idle_changed(self, progress: EncodingProgress | None, error: SpecchatError | None) -> None:
        """Show the progress of idle work; from any thread."""
        self.chat_screen.post_message(IdleChanged(progress, error))

    def learning_changed(self, progress: LearningNews, error: SpecchatError | None) -> None:
        """Show the progress of learning; from any thread."""
        self.chat_screen.post_message(LearningChanged(progress, error))

    def commands_answered(self, commands: int) -> None:
        """Show how many commands are being answered; from any thread."""
        self.chat_screen.post_message(CommandsAnswered(commands))

    def leave(self) -> bool:
        """Close model and history after `run`; False if a call into the model is still running."""
        conversation = self.chat_screen.conversation
        if self._socket is not None:
            self._socket.close()
        at_rest = conversation.model_thread.close()
        conversation.history_thread.close()
        return at_rest


def run_demo(stage: DemoStage) -> None:
    """Run the demonstration in the interface."""
    run(stage.options, stage)


def run(options: Options, stage: DemoStage | None = None) -> None:
    """Run the interface until the user quits; with a `stage`, run the demonstration in it.

    Raises:
        StoreError, InputError: the data or the settings cannot be used, or there is no terminal;
            nothing has been shown yet.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("the interface needs a terminal; use `specchat ask` without one")
    _tune_garbage_collector()
    locations = locate(options.data_dir)
    locations.create()
    config = load_config(locations.settings)
    keymap = Keymap(SCOPES, config.keys, f"{locations.settings}: keys")
    history = History.open(locations.history)

    def load(choice: str | None) -> Model:
        chosen = replace(options, model=choice or options.model)
        if stage is not None and choice is None:
            stage.make_model()
        notify = (app.indexer_changed, app.idle_changed, app.learning_changed)
        model = open_model(chosen, locations, history, *notify)
        return model if stage is None else replace(model, name=DEMO_MODEL, hint="")

    app = Specchat(
        history,
        locations,
        load,
        config.theme,
        lambda theme: write_setting(locations, "theme", theme),
        keymap,
        stage,
        AnswerNotice(config.notify, config.notify_after),
        listens=stage is None,
    )
    try:
        app.run()
    finally:
        for number in ENDING:
            # A closing terminal sends more signals, which must not interrupt the shutdown.
            signal.signal(number, signal.SIG_IGN)
        at_rest = app.leave()
        history.close()
    if not at_rest:
        # A thread inside the model may take minutes (prefill of a long prompt, loading a large
        # file), and must not run while modules are torn down. What was shown is stored.
        if stage is not None:
            stage.remove()
        os._exit(app.return_code or 0)
    if app.return_code:
        sys.exit(app.return_code)


def _tune_garbage_collector() -> None:
    """Make full collections rare: with 2,000 messages, one stopped scrolling for a third of a
    second; with these thresholds the longest pause is a tenth of that."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 100)

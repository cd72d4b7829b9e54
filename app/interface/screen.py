"""The one screen: chats at the left, the conversation, the panel at the right or below.

Owns what stands where, and what each command does.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from app.attach import attach
from app.figures import Figures
from app.interface.asking import AskLine
from app.interface.chats import Chats
from app.interface.clipboard import last_code
from app.interface.commands import COMMANDS
from app.interface.conversation import Conversation
from app.interface.finder import Finder
from app.interface.help import Help
from app.interface.idling import Idled, note, remembered
from app.interface.imports import Imports
from app.interface.imports_forget import Forgetting
from app.interface.imports_run import Importing, Learnt
from app.interface.imports_sources import Sources
from app.interface.keeping import Keeping
from app.interface.keys import keys_of
from app.interface.messages import ChatChosen, ChatKept, ChatsChanged, ChatsLeft, FiguresChanged
from app.interface.models_switch import Models
from app.interface.panel import Panel
from app.interface.talk import OpenModel
from app.interface.topbar import NEW_CHAT, NEW_PRIVATE_CHAT
from app.interface.tuner import Tuner
from app.locations import Locations
from datastores.errors import SpecchatError
from datastores.history import History
from datastores.search import Hit

WIDE = 120
"""Columns from which the panel stands at the right."""

BROAD = 150
"""Columns from which the chats are listed without being asked for."""


class ChatScreen(Screen[None]):
    """Everything but help and palette."""

    BLANK = True  # draws nothing itself

    BINDINGS: ClassVar[list[BindingType]] = [command.binding() for command in COMMANDS]

    def __init__(self, history: History, locations: Locations, open_model: OpenModel) -> None:
        super().__init__()
        self._history = history
        self._figures = Figures()
        self.conversation = Conversation(history, open_model, self._figures)
        self._keeping = Keeping(self.conversation, history, locations)
        self._tuner = Tuner(self.conversation, history, locations)
        self._models = Models(self.conversation, self._figures, locations)
        self.importing = Importing(self.conversation, locations)
        self.forgetting = Forgetting(self.conversation, locations)
        self._listed: bool | None = None

    def compose(self) -> ComposeResult:
        yield Chats()
        yield self.conversation
        yield Panel(self._figures, wide=True)

    @property
    def chats(self) -> Chats:
        return self.query_one(Chats)

    def on_mount(self) -> None:
        self._list_chats()
        damaged = self._history.store.set_aside
        if damaged is not None:
            self.conversation.complain(f"the history was damaged: what was left is in {damaged}")
        # After the first frame: what loading imports would hold it up.
        self.call_after_refresh(lambda: self.run_worker(self._models.load()))
        self.call_after_refresh(self._keeping.make_good)

    async def on_unmount(self) -> None:
        await self._models.leave()
        await self.importing.leave()

    def on_resize(self, event: events.Resize) -> None:
        width = event.size.width
        self.set_class(width >= WIDE, "-wide")
        self.set_class(width < WIDE, "-narrow")
        self.set_class(width >= BROAD if self._listed is None else self._listed, "-listed")

    @on(ChatsChanged)
    def _list_chats(self) -> None:
        """List the chats that hold anything, and name the open one."""
        try:
            chats = [chat for chat in self._history.chats() if chat.active is not None]
        except SpecchatError as error:
            self.conversation.complain(error)
            return
        opened = self.conversation.chat
        self.chats.show(chats, opened)
        titles = [chat.title for chat in chats if chat.id == opened]
        empty = NEW_PRIVATE_CHAT if self.conversation.private else NEW_CHAT
        self.conversation.bar.chat = titles[0] if titles else empty

    @on(ChatChosen)
    def _chosen(self, event: ChatChosen) -> None:
        self.conversation.open(event.chat)

    @on(Learnt)
    def _learnt(self, event: Learnt) -> None:
        self.importing.learnt(event)

    @on(Idled)
    def _idled(self, event: Idled) -> None:
        self.conversation.bar.idle = note(event.reading)
        if event.trouble is not None:
            self.conversation.complain(event.trouble)

    @on(ChatKept)
    def _kept(self, event: ChatKept) -> None:
        self._keeping.do(event.verb, event.chat)

    @on(ChatsLeft)
    def _left(self) -> None:
        self.conversation.prompt.focus()

    @on(FiguresChanged)
    def _figures_changed(self) -> None:
        model = self.conversation.talk.model
        self._figures.remembered = remembered(model.engine if model is not None else None)
        for panel in self.query(Panel):
            panel.redraw()

    def action_help(self) -> None:
        self.app.push_screen(Help())

    def action_more(self) -> None:
        for panel in self.query(Panel):
            panel.detailed = not panel.detailed

    def action_tint(self) -> None:
        self.conversation.transcript.tinted = not self.conversation.transcript.tinted

    def action_reasoning(self) -> None:
        self.conversation.transcript.toggle_reasoning()

    def action_models(self) -> None:
        self._models.pick()

    def action_new_chat(self, private: bool = False) -> None:
        self.conversation.open(None, private=private)

    def action_chat(self, verb: str) -> None:
        """Do `verb` with the open chat."""
        self._keeping.do(verb, self.conversation.chat)

    def action_settings(self) -> None:
        self._tuner.open()

    def action_chats(self) -> None:
        """Go to the list; from there, hide it."""
        self._listed = not self.chats.has_focus
        self.set_class(self._listed, "-listed")
        (self.chats if self._listed else self.conversation.prompt).focus()

    def action_step(self, step: int) -> None:
        """Open the chat `step` places down the list."""
        neighbour = self.chats.neighbour(step)
        if neighbour is not None:
            self.conversation.open(neighbour)

    def action_search(self) -> None:
        self.app.push_screen(Finder(self._history), self._open_hit)

    def _open_hit(self, hit: Hit | None) -> None:
        if hit is not None:
            self.conversation.open(hit.chat, hit.message)

    def action_stop(self) -> None:
        self.conversation.stop()

    def action_again(self) -> None:
        self.conversation.regenerate()

    def action_edit(self) -> None:
        self.conversation.edit()

    def action_version(self, step: int) -> None:
        """Read the version `step` places on."""
        self.conversation.walk(step)

    def action_start(self) -> None:
        self.conversation.transcript.go_to_start()

    def action_end(self) -> None:
        self.conversation.transcript.follow()

    def action_theme(self) -> None:
        self.app.action_change_theme()

    def action_copy(self) -> None:
        """Copy what is selected; where nothing is, the person probably wanted to leave."""
        selected = self.get_selected_text()
        if selected:
            self.app.copy_to_clipboard(selected)
            self.notify("copied", markup=False, timeout=2)
        else:
            hint = keys_of(self).fill("nothing is selected to copy; {quit} quits")
            self.notify(hint, markup=False, timeout=4)

    def action_copy_answer(self) -> None:
        self._copy_out(self.conversation.transcript.last_answer, "there is no answer to copy")

    def action_copy_code(self) -> None:
        code = last_code(self.conversation.transcript.last_answer)
        self._copy_out(code, "the answer holds no code to copy")

    def _copy_out(self, text: str, missing: str) -> None:
        if text:
            self.app.copy_to_clipboard(text)
        self.notify("copied" if text else missing, markup=False, timeout=2)

    def action_attach(self) -> None:
        self.app.push_screen(AskLine("File to attach"), self._put_before)

    def _put_before(self, path: str | None) -> None:
        """Put the file's text before what stands in the prompt."""
        if not path or not path.strip():
            return
        prompt = self.conversation.prompt
        try:
            prompt.write(attach(prompt.text, [Path(path.strip()).expanduser()]))
        except SpecchatError as error:
            self.conversation.complain(error)

    def action_imports(self, line: str | None = None) -> None:
        self.app.push_screen(Imports(self.importing, self.forgetting, line))

    def action_sources(self) -> None:
        def again(path: str | None) -> None:
            if path is not None:
                self.action_imports(path)

        self.app.push_screen(Sources(self.importing, self.forgetting), again)

    def action_palette(self) -> None:
        self.app.action_command_palette()

    def action_quit(self) -> None:
        self.app.exit()

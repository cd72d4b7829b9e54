"""The one screen: chats on the left, the conversation, the panel on the right or below.

Lays the parts out, and dispatches messages to them.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.theme import Theme

from app.conversation.session_statistics import SessionStatistics
from app.conversation.unsent import UnsentTexts, read_unsent, write_unsent
from app.foreground import Foreground
from app.interface.chat.chat_actions import ChatActions
from app.interface.chat.chat_list import ChatList
from app.interface.chat.chat_navigation import ChatNavigation
from app.interface.chat.conversation import Conversation
from app.interface.chat.copy import CopyActions
from app.interface.chat.editor_actions import EditorActions
from app.interface.chat.message_actions import MessageActions
from app.interface.chat.retrieval_actions import RetrievalActions
from app.interface.chat.settings_actions import ChatSettings
from app.interface.chat.thread_actions import ThreadActions
from app.interface.commands import key_hints
from app.interface.commands.key_hints import KeyHints
from app.interface.commands.table import COMMANDS, RUN, SLASH_NAMES, run_slash
from app.interface.demo import Demo
from app.interface.imports.tasks import DeletionTask, ImportTask
from app.interface.imports.text_actions import TextActions
from app.interface.imports.watch_task import WatchTask
from app.interface.messages import (
    ChatActionRequested,
    ChatListLeft,
    ChatsChanged,
    ChatSelected,
    CitationChosen,
    CommandEntered,
    CommandsAnswered,
    IdleChanged,
    ImportedChatSelected,
    ImportedChatsToggled,
    IndexerChanged,
    LearningChanged,
    MomentChanged,
    StatisticsChanged,
)
from app.interface.models.switch import ModelSwitch
from app.interface.panel import phrases
from app.interface.panel.panel import Panel
from app.interface.statistics.statistics_screen import StatisticsScreen, report_reader
from app.interface.transcript.message_list import MessageActionRequested
from app.interface.workers import start_worker
from app.locations import Locations
from app.runtime.demo import DemoStage
from app.runtime.learning import LearningProgress, LearningWaits
from app.runtime.model_thread import OpenModel
from datastores.chats.history import History
from datastores.errors import SpecchatError

UNSENT_INTERVAL_S = 2.0
"""Seconds between saves of the unsent prompts."""

MIN_COLUMNS_PANEL_RIGHT = 120
"""With fewer columns, the panel is below the conversation."""

MIN_COLUMNS_CHAT_LIST = 150
"""With fewer columns, the chat list is hidden by default."""

MIN_COLUMNS_BESIDE_LIST = 60
"""With fewer columns, the chat list covers the chat."""

MIN_ROWS_PANEL = 16
"""With fewer rows, the panel below is shortened in favour of the answer."""


class ChatScreen(Screen[None]):
    """The chats, the conversation and the panel; dialogs open over it."""

    BLANK = True  # its children cover it

    BINDINGS: ClassVar[list[BindingType]] = [command.binding() for command in COMMANDS]

    def __init__(
        self,
        history: History,
        locations: Locations,
        open_model: OpenModel,
        stage: DemoStage | None = None,
    ) -> None:
        super().__init__()
        self._history, self._locations = history, locations
        self._session_statistics = SessionStatistics()
        self.conversation = Conversation(
            history, open_model, self._session_statistics, Foreground(locations.foreground)
        )
        self.chat_actions = ChatActions(self.conversation, history, locations)
        self.chat_settings = ChatSettings(self.conversation, history, locations)
        self.model_switch = ModelSwitch(self.conversation, self._session_statistics, locations)
        self.copy_actions = CopyActions(self.conversation)
        self.editor_actions = EditorActions(self.conversation)
        self.thread_actions = ThreadActions(self.conversation)
        self.message_actions = MessageActions(
            self.conversation, self.thread_actions, self.copy_actions, self.editor_actions
        )
        self.retrieval_actions = RetrievalActions(self.conversation, history, locations)
        self.import_task = ImportTask(self.conversation, locations)
        self.deletion_task = DeletionTask(
            self.conversation, locations, self.import_task.import_removed
        )
        self.watch_task = WatchTask(
            self.conversation, self.import_task, self.deletion_task, locations
        )
        self.text_actions = TextActions(self.conversation, self.import_task, self.deletion_task)
        self._stage = stage
        self._toasts = 0
        self._saved_unsent: UnsentTexts = {}
        self._unsent_error = ""
        self.navigation = ChatNavigation(self.conversation, history, locations)

    def compose(self) -> ComposeResult:
        yield ChatList()
        yield self.conversation
        yield Panel(self._session_statistics, wide=True)
        yield KeyHints()

    @property
    def chat_list(self) -> ChatList:
        return self.query_one(ChatList)

    def on_mount(self) -> None:
        self.watch(self, "focused", self.update_hints)
        self.watch(self, "focused", self._uncover_chat)
        self.app.theme_changed_signal.subscribe(self, self._theme_changed)
        self.screen_layout_refresh_signal.subscribe(self, lambda _: self._erase_toasts())
        self.conversation.prompt.completion.commands = SLASH_NAMES
        self.conversation.prompt.completion.model_names = self.model_switch.names
        self.conversation.prompt.completion.docs_words = self.retrieval_actions.words
        self.navigation.begin()
        try:
            self.conversation.restore_unsent(read_unsent(self._locations.unsent))
        except SpecchatError as error:
            self.conversation.show_error(error)
        self.chat_actions.report_damage()
        self.set_interval(UNSENT_INTERVAL_S, self._save_unsent)
        # After the first frame, which the imports that loading needs would delay.
        self.call_after_refresh(lambda: start_worker(self, self.model_switch.load))
        self.call_after_refresh(self.chat_actions.retry_pending_erasure)
        self.call_after_refresh(self.watch_task.begin)
        if self._stage is not None:
            demo = Demo(self.conversation, self.import_task, self._session_statistics, self._stage)
            start_worker(self, demo.run)

    def _erase_toasts(self) -> None:
        """Redraw everything after a notification disappears.

        Textual leaves stale content under it if another widget's region was queried meanwhile.
        """
        shown = len(self.query("Toast"))
        if shown < self._toasts:
            self.refresh()
        self._toasts = shown

    def _theme_changed(self, theme: Theme) -> None:
        """Redraw everything in the new colours.

        Textual notifies a widget of a style change before it has updated the widget's component
        classes, so what is drawn and cached then has the colours of the previous theme.
        """
        for widget in self.query():
            widget.notify_style_update()
            widget.refresh()

    def _save_unsent(self) -> None:
        """Store the unsent prompts if they changed, since the program may be killed."""
        texts = self.conversation.unsent_texts()
        if texts == self._saved_unsent:
            return
        self._saved_unsent = texts
        try:
            self.keep_unsent(durable=False)
        except SpecchatError as error:
            if str(error) != self._unsent_error:
                self.conversation.show_error(error)
            self._unsent_error = str(error)

    def keep_unsent(self, *, durable: bool = True) -> None:
        """Store the unsent prompts, except of private chats, for the next session.

        Args:
            durable: wait until they are on the disk.

        Raises:
            StoreError: the history cannot be read, or the file cannot be written.
        """
        places: dict[int | None, int | None] = {
            # A chat without messages is not listed, so its prompt goes to the new chat.
            chat.id: chat.id if chat.active is not None else None
            for chat in self._history.chats()
            if not chat.private
        }
        if not self.conversation.private:
            places[None] = None
        kept: dict[int | None, str] = {}
        for chat, text in self.conversation.unsent_texts().items():
            if chat in places and text:
                place = places[chat]
                kept[place] = "\n".join(filter(None, (kept.get(place), text)))
        write_unsent(self._locations.unsent, kept, durable=durable)

    async def on_unmount(self) -> None:
        self.navigation.close()
        await self.model_switch.shutdown()
        await self.import_task.shutdown()
        await self.watch_task.shutdown()

    def on_resize(self, event: events.Resize) -> None:
        width = event.size.width
        self.set_class(width >= MIN_COLUMNS_PANEL_RIGHT, "-wide")
        self.set_class(width < MIN_COLUMNS_PANEL_RIGHT, "-narrow")
        self.set_class(event.size.height < MIN_ROWS_PANEL, "-short")
        self.set_class(width < MIN_COLUMNS_BESIDE_LIST, "-tight")
        listed = self.navigation.listed
        self.set_class(width >= MIN_COLUMNS_CHAT_LIST if listed is None else listed, "-listed")

    def _uncover_chat(self) -> None:
        if self.has_class("-tight") and self.focused not in (None, self.chat_list):
            self.navigation.hide()

    @on(ChatsChanged)
    def _chats_changed(self) -> None:
        self.navigation.refresh()
        self.chat_actions.report_damage()

    @on(MomentChanged)
    def update_hints(self) -> None:
        """Show the keys that apply now."""
        conversation = self.conversation
        if self.focused is self.chat_list:
            hints = key_hints.CHAT_LIST
        elif self.focused is conversation.transcript:
            hints = key_hints.MESSAGES
        elif conversation.turn is not None:
            hints = key_hints.QUEUED if conversation.queue.messages else key_hints.ANSWERING
        elif conversation.is_editing:
            hints = key_hints.EDITING
        elif conversation.is_branching:
            hints = key_hints.BRANCHING
        elif conversation.is_cut_off:
            hints = key_hints.CUT_OFF
        else:
            hints = key_hints.NEW_CHAT if conversation.is_empty else key_hints.READING
        self.query_one(KeyHints).show(hints)

    @on(CommandsAnswered)
    def _commands_answered(self, event: CommandsAnswered) -> None:
        ended = event.commands < self.conversation.topbar.commands
        self.conversation.topbar.commands = event.commands
        if ended:
            self.post_message(ChatsChanged())

    @on(ChatSelected)
    def _chosen(self, event: ChatSelected) -> None:
        self.conversation.open(event.chat)

    @on(ImportedChatSelected)
    def _imported_chosen(self, event: ImportedChatSelected) -> None:
        self.navigation.open_imported(event.chat, event.message)

    @on(ImportedChatsToggled)
    def _imported_toggled(self) -> None:
        self.navigation.toggle_imported()

    @on(CitationChosen)
    def _citation_chosen(self, event: CitationChosen) -> None:
        self.retrieval_actions.show_citations(event.citations, event.index)

    @on(IndexerChanged)
    def _indexer_changed(self, event: IndexerChanged) -> None:
        self.import_task.follow_indexer(event)

    @on(IdleChanged)
    def _idle_changed(self, event: IdleChanged) -> None:
        self.conversation.topbar.idle = phrases.idle(event.progress)
        if event.error is not None:
            self.conversation.show_error(event.error)

    @on(LearningChanged)
    def _learning_changed(self, event: LearningChanged) -> None:
        if event.error is not None:
            self.conversation.show_error(event.error)
        elif not isinstance(event.progress, LearningWaits):  # shown by `_statistics_changed`
            progress = event.progress
            self.conversation.topbar.learning = phrases.learning(progress)
            share = progress.share if isinstance(progress, LearningProgress) else None
            self._session_statistics.learned_share = share
        self.post_message(StatisticsChanged())

    @on(ChatActionRequested)
    def _kept(self, event: ChatActionRequested) -> None:
        self.chat_actions.run(event.action, event.chat)

    @on(CommandEntered)
    def _command_entered(self, event: CommandEntered) -> None:
        if error := run_slash(self, event.line):
            self.conversation.prompt.put_back(event.text)
            self.conversation.show_error(error)

    @on(MessageActionRequested)
    def _message_action(self, event: MessageActionRequested) -> None:
        self.message_actions.run(event)

    @on(ChatListLeft)
    def _left(self) -> None:
        self.conversation.prompt.focus()

    @on(StatisticsChanged)
    def _statistics_changed(self) -> None:
        model = self.conversation.model_thread.model
        engine = model.engine if model is not None else None
        stats = self._session_statistics
        stats.dense_states = engine.remembered if engine is not None else None
        stats.draft_model = engine.draft_model_name if engine is not None else ""
        version = engine.resources.draft_model_version.number if engine is not None else 0
        stats.draft_model_version = version
        learner = model.learner if model is not None else None
        stats.learning_waits = learner.waits_for if learner is not None else ""
        for panel in self.query(Panel):
            panel.redraw()

    def action_command(self, name: str) -> None:
        RUN[name](self)

    def act_on_chat(self, action: str) -> None:
        """Run one of `ChatActions` on the open chat."""
        self.chat_actions.run(action, self.conversation.chat)

    def toggle_details(self) -> None:
        """Show or hide the raw figures."""
        for panel in self.query(Panel):
            panel.detailed = not panel.detailed

    def show_statistics(self) -> None:
        """Show the statistics of all stored answers, over weeks."""
        self.app.push_screen(StatisticsScreen(report_reader(self._history, self._locations)))

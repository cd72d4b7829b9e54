"""What each command of the table does, on the chat screen.

Owns which part of the screen a command is for. How it is done is that part's business.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from app.interface.commands.help import Help
from app.interface.panel.panel import Panel

if TYPE_CHECKING:
    from app.interface.screen import ChatScreen

Deeds = dict[str, Callable[[], object]]


def deeds(screen: ChatScreen) -> Deeds:
    """By the name of each command: what it does on `screen`."""
    return {**_looks(screen), **_chats(screen), **_answers(screen), **_rest(screen)}


def _looks(screen: ChatScreen) -> Deeds:
    """What is shown of the open chat, and how."""

    def detail() -> None:
        for panel in screen.query(Panel):
            panel.detailed = not panel.detailed

    def tint() -> None:
        transcript = screen.conversation.transcript
        transcript.tinted = not transcript.tinted

    return {
        "panel": detail,
        "tint": tint,
        "reasoning": lambda: screen.conversation.transcript.toggle_reasoning(),
        "version.older": lambda: screen.conversation.walk(-1),
        "version.newer": lambda: screen.conversation.walk(1),
        "scroll.start": lambda: screen.conversation.transcript.go_to_start(),
        "scroll.end": lambda: screen.conversation.transcript.follow(),
        "theme": lambda: screen.app.action_change_theme(),
    }


def _chats(screen: ChatScreen) -> Deeds:
    """Which chat is open, and what is done with it as a whole."""

    def keep(verb: str) -> None:
        screen.keeping.do(verb, screen.conversation.chat)

    return {
        "chat.new": lambda: screen.conversation.open(None),
        "chat.new-private": lambda: screen.conversation.open(None, private=True),
        "chat.list": screen.toggle_list,
        "chat.find": screen.search,
        "chat.newer": lambda: screen.step(-1),
        "chat.older": lambda: screen.step(1),
        "chat.settings": screen.tuner.open,
        **{f"chat.{verb}": partial(keep, verb) for verb in screen.keeping.verbs},
    }


def _answers(screen: ChatScreen) -> Deeds:
    """Questions and answers: who gives them, and what comes in and out of them."""
    return {
        "models": screen.model_switch.pick,
        "answer.stop": screen.conversation.stop,
        "answer.again": screen.conversation.regenerate,
        "question.edit": screen.conversation.edit,
        "answer.copy": screen.copying.answer,
        "code.copy": screen.copying.code,
        "copy": screen.copying.selection,
        "attach": screen.texts.attach,
        "texts.import": screen.texts.bring_in,
        "texts.list": screen.texts.show,
    }


def _rest(screen: ChatScreen) -> Deeds:
    """The program itself."""
    return {
        "help": lambda: screen.app.push_screen(Help()),
        "palette": lambda: screen.app.action_command_palette(),
        "quit": lambda: screen.app.exit(),
    }

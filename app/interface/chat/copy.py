"""Copies an answer, its code or the selection to the clipboard of the system, tmux or terminal.

The key that copies the selection also stops, clears and quits, as terminals expect of Ctrl+C.
"""

from __future__ import annotations

import re
import subprocess
from base64 import b64encode
from collections.abc import Mapping, Sequence
from time import monotonic

from markdown_it import MarkdownIt
from textual.markup import escape

from app.interface.chat.conversation import Conversation
from app.interface.dialogs.basic import InputDialog
from app.interface.keymap import keymap_of
from app.interface.terminal import for_terminal
from app.sanitise import one_line

QUIT_WINDOW_S = 2.0
"""Seconds within which the key has to be pressed again to quit."""
QUIT_HINT = "Press {copy} again to quit."

COPY_TIMEOUT_S = 2.0
"""Timeout of a clipboard program."""


def clipboard_commands(environment: Mapping[str, str]) -> list[list[str]]:
    """Commands that may copy their standard input, most likely first."""
    known = []
    if not environment.get("SSH_TTY"):  # else they would copy on the remote machine
        known.append(["pbcopy"])
        if environment.get("WAYLAND_DISPLAY"):
            known.append(["wl-copy"])
        if environment.get("DISPLAY"):
            known.append(["xclip", "-selection", "clipboard"])
        known.append(["clip.exe"])
    if environment.get("TMUX"):
        known.append(["tmux", "load-buffer", "-w", "-"])
    return known


def copy_with(text: str, commands: Sequence[Sequence[str]]) -> bool:
    """Copy `text` with the first program that works; returns whether one did."""
    return any(_copies(command, text) for command in commands)


def osc52_sequence(text: str, environment: Mapping[str, str]) -> str:
    """The escape sequence that makes the terminal copy `text`."""
    return for_terminal(f"\x1b]52;c;{b64encode(text.encode()).decode()}\a", environment)


def code_blocks(text: str) -> list[str]:
    """The blocks of code in a Markdown text, in order."""
    blocks = MarkdownIt("commonmark").parse(text)
    code = [block.content for block in blocks if block.type in ("fence", "code_block")]
    return [block.rstrip("\n") for block in code]


def placeholders(code: str) -> list[str]:
    """The `{{placeholders}}` of `code`, or the `<placeholders>` of a command; unique, in order."""
    is_command = not _NO_COMMAND.search(code)
    pattern = _COMMAND_PLACEHOLDER if is_command else _PLACEHOLDER
    return list(dict.fromkeys(pattern.findall(code)))


_PLACEHOLDER = re.compile(r"\{\{[^{}\n]{1,80}\}\}")
"""As in tldr pages."""

_COMMAND_PLACEHOLDER = re.compile(r"(?<![\w<])<[A-Za-z0-9/*](?:[\w *./:,|-]{0,78}[\w.*])?>")
"""As in manuals; `list<int>`, `<<EOF` and `<in >out` do not match."""

_NO_COMMAND = re.compile(r"^\s*[<#]|\n|\{\{|</\w+>")
"""Several lines, markup or preprocessor directives, where angle brackets mean something else."""


def _copies(command: Sequence[str], text: str) -> bool:
    try:
        # xclip keeps running to serve the text: a pipe that it inherits would never be closed.
        done = subprocess.run(
            command,
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COPY_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class CopyActions:
    """Copies from the open chat, and notifies the person."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._quits_until = float("-inf")

    def interrupt(self) -> None:
        """Stop the answer, else copy the selection, else clear the prompt, else quit if repeated.

        Only two presses in a row with nothing else to do quit, so that nobody quits by mistake.
        """
        conversation = self._conversation
        quits, self._quits_until = monotonic() < self._quits_until, float("-inf")
        if conversation.turn is not None:
            conversation.stop()
        elif selected := self._selected_text():
            self.copy(selected, "")
        elif conversation.prompt.text or conversation.prompt.attachments.chips:
            conversation.clear_prompt()
        elif quits:
            conversation.app.exit()
        else:
            self._quits_until = monotonic() + QUIT_WINDOW_S
            hint = keymap_of(conversation).fill(QUIT_HINT)
            conversation.notify(hint, markup=False, timeout=QUIT_WINDOW_S)

    def _selected_text(self) -> str:
        conversation = self._conversation
        return conversation.prompt.selected_text or conversation.screen.get_selected_text() or ""

    def copy_answer(self) -> None:
        """Copy the last answer as it was written."""
        self.copy(self._conversation.transcript.last_answer, "No answer to copy.")

    def copy_code(self) -> None:
        """Copy the last block of code of the last answer."""
        blocks = code_blocks(self._conversation.transcript.last_answer)
        self.copy_block(blocks[-1] if blocks else "", "The answer has no code block.")

    def copy_block(self, code: str, missing: str, copied: str = "") -> None:
        """Copy a block of code after asking for the values of its placeholders.

        An empty value keeps a placeholder; Esc copies with the remaining placeholders.
        """
        self._fill(code, placeholders(code), missing, copied)

    def _fill(self, code: str, names: list[str], missing: str, copied: str) -> None:
        if not names:
            self.copy(code, missing, copied)
            return
        name, rest = names[0], names[1:]

        def filled(value: str | None) -> None:
            if value is None:
                self.copy(code, missing, copied)
                return
            text = code.replace(name, value) if value.strip() else code
            self._fill(text, rest, missing, copied)

        shown = one_line(f"Fill in: {name.strip('{}<>')}", 60)
        title = escape(shown)  # written by a model: not markup
        dialog = InputDialog(title, action="Next" if rest else "Copy", cancel="Copy as it is")
        self._conversation.app.push_screen(dialog, filled)

    def copy(self, text: str, missing: str, copied: str = "") -> None:
        """Copy `text` and say `copied`; say `missing` if there is no text."""
        if text:
            self._conversation.app.copy_to_clipboard(text)
        notice = (copied or "Copied.") if text else missing
        self._conversation.notify(notice, markup=False, timeout=2)

"""Every command of the interface: its name, its keys, its help, and what it runs.

Key bindings, the help screen, the command palette and slash commands are all made from `COMMANDS`.
Ids are stable, since users' settings remap keys by them.
"""

from __future__ import annotations

from app.interface.commands.command import Command, CommandTarget
from app.interface.commands.help import Help
from app.interface.demo import show_demo
from app.interface.slash_commands import SlashLine, SlashName, unknown
from app.interface.wording import TUNED


def _toggle_tint(screen: CommandTarget) -> None:
    transcript = screen.conversation.transcript
    transcript.origins_highlighted = not transcript.origins_highlighted


def _rename(screen: CommandTarget, title: str) -> None:
    screen.chat_actions.rename_to(screen.conversation.chat, title)


def _export(screen: CommandTarget, form: str) -> None:
    if form.lower() in EXPORT_FORMS:
        screen.act_on_chat(EXPORT_FORMS[form.lower()])
    else:
        screen.conversation.show_error("/export takes json or md")


EXPORT_FORMS = {"md": "markdown", "markdown": "markdown", "json": "json"}
"""Actions of `ChatActions`, by the argument of `/export`."""

COMMANDS = (
    Command(
        "help",
        "Help",
        "List all keys and explain the panel",
        lambda screen: screen.app.push_screen(Help(SLASH_BY_ID)),
        "f1",
        slash="help",
    ),
    Command(
        "panel",
        "Details",
        "Show or hide detailed statistics",
        lambda screen: screen.toggle_details(),
        "f2",
    ),
    Command(
        "tint",
        "Highlight draft origins",
        "Colour each word of the answers by its draft origin",
        _toggle_tint,
        "f3",
    ),
    Command(
        "reasoning",
        "Show or hide reasoning",
        "Show or hide the model's thinking before the answer",
        lambda screen: screen.conversation.transcript.toggle_reasoning(),
        "f4",
    ),
    Command(
        "models",
        "Models",
        "Choose a model, or download one from Hugging Face",
        lambda screen: screen.model_switch.pick(),
        "f5",
        slash="model",
        argument="[NAME]",
        run_with=lambda screen, name: screen.model_switch.switch_to(name),
    ),
    Command(
        "stats.open",
        "Statistics",
        "Show speed, drafts and stores over weeks",
        lambda screen: screen.show_statistics(),
        "f10",
        slash="stats",
    ),
    Command(
        "learning",
        "Turn learning on or off",
        "Let drafts learn from your chats when idle, or do not",
        lambda screen: screen.model_switch.toggle_learning(),
        "alt+l",
        slash="learning",
    ),
    Command(
        "idle",
        "Pause or resume idle work",
        "Stop indexing and learning in the background, or resume it",
        lambda screen: screen.model_switch.toggle_idle(),
        "alt+i",
        slash="pause",
    ),
    Command(
        "chat.new",
        "New chat",
        "Start an empty chat",
        lambda screen: screen.conversation.open(None),
        "ctrl+n",
        slash="new",
    ),
    Command(
        "chat.new-private",
        "New private chat",
        "Start a chat that is stored, but not used for drafts, indexing or training",
        lambda screen: screen.conversation.open(None, private=True),
        slash="new-private",
    ),
    Command(
        "chat.rename",
        "Rename chat",
        "Change the title of this chat",
        lambda screen: screen.act_on_chat("rename"),
        slash="rename",
        argument="[TITLE]",
        run_with=_rename,
    ),
    Command(
        "chat.pin",
        "Pin or unpin chat",
        "Keep this chat at the top of the list, or not",
        lambda screen: screen.act_on_chat("pin"),
        slash="pin",
    ),
    Command(
        "chat.private",
        "Make chat private or not",
        "Stop using this chat for drafts, or use it again",
        lambda screen: screen.act_on_chat("private"),
        slash="private",
    ),
    Command(
        "chat.delete",
        "Delete chat",
        "Delete this chat completely",
        lambda screen: screen.act_on_chat("delete"),
        slash="delete",
    ),
    Command(
        "chat.settings",
        f"Chat settings ({TUNED})",
        "System prompt, sampling, answer length, stop sequences and presets",
        lambda screen: screen.chat_settings.open(),
        "ctrl+s",
        slash="settings",
    ),
    Command(
        "chat.system",
        "System prompt",
        "Set what the model reads before this chat",
        lambda screen: screen.chat_settings.open(),
        slash="system",
        argument="[TEXT]",
        run_with=lambda screen, text: screen.chat_settings.set_system(text),
    ),
    Command(
        "chat.markdown",
        "Export chat as Markdown",
        "Save this chat to a readable file",
        lambda screen: screen.act_on_chat("markdown"),
        slash="export",
        argument="[json|md]",
        run_with=_export,
    ),
    Command(
        "chat.json",
        "Export chat as JSON",
        "Save all versions to a file that specchat can restore",
        lambda screen: screen.act_on_chat("json"),
    ),
    Command(
        "chat.list",
        "Chats",
        "Show or hide the chat list",
        lambda screen: screen.navigation.toggle(),
        "ctrl+o",
        slash="chats",
    ),
    Command(
        "chat.find",
        "Search",
        "Search titles and messages",
        lambda screen: screen.navigation.search(),
        "ctrl+f",
        slash="search",
    ),
    Command(
        "chat.newer",
        "Newer chat",
        "Open the chat above in the list",
        lambda screen: screen.navigation.open_neighbour(-1),
        "alt+up",
    ),
    Command(
        "chat.older",
        "Older chat",
        "Open the chat below in the list",
        lambda screen: screen.navigation.open_neighbour(1),
        "alt+down",
    ),
    Command(
        "answer.stop",
        "Stop",
        "Stop the answer and keep what was written",
        lambda screen: screen.conversation.stop(),
        "escape",
    ),
    Command(
        "queue.edit",
        "Edit queued message",
        "Move the last queued message back to the prompt",
        lambda screen: screen.conversation.edit_queued(),
        "alt+q",
        slash="unqueue",
    ),
    Command(
        "queue.remove",
        "Remove queued message",
        "Remove the last queued message",
        lambda screen: screen.conversation.remove_queued(),
        slash="drop",
    ),
    Command(
        "answer.again",
        "Regenerate",
        "Generate another answer",
        lambda screen: screen.thread_actions.regenerate(),
        "ctrl+r",
        slash="regenerate",
    ),
    Command(
        "answer.continue",
        "Continue",
        "Continue an answer that was stopped or cut off",
        lambda screen: screen.thread_actions.resume(),
        "alt+r",
        slash="continue",
    ),
    Command(
        "question.edit",
        "Edit question",
        "Edit the last question; press again for the one before",
        lambda screen: screen.thread_actions.edit(),
        "ctrl+t,alt+e",
        slash="edit",
    ),
    Command(
        "answer.copy",
        "Copy answer",
        "Copy the last answer as Markdown",
        lambda screen: screen.copy_actions.copy_answer(),
        "ctrl+g,alt+c",
        slash="copy",
    ),
    Command(
        "code.copy",
        "Copy code",
        "Copy the last code block of the answer",
        lambda screen: screen.copy_actions.copy_code(),
        "alt+y",
        slash="copy-code",
    ),
    Command(
        "message.select",
        "Messages",
        "Select a message to copy, edit, regenerate or branch from",
        lambda screen: screen.thread_actions.select_message(),
        "alt+m",
    ),
    Command(
        "branch",
        "Branch",
        "Continue differently from an earlier point; press again to go further back",
        lambda screen: screen.thread_actions.branch_here(),
        "alt+n",
        slash="branch",
    ),
    Command(
        "version.older",
        "Previous version",
        "Show the previous version of a message",
        lambda screen: screen.thread_actions.switch_version(-1),
        "alt+left",
    ),
    Command(
        "version.newer",
        "Next version",
        "Show the next version of a message",
        lambda screen: screen.thread_actions.switch_version(1),
        "alt+right",
    ),
    Command(
        "prompt.editor",
        "Write in editor",
        "Write the prompt in $VISUAL or $EDITOR",
        lambda screen: screen.editor_actions.edit_prompt(),
        "alt+o",
        slash="editor",
    ),
    Command(
        "answer.view",
        "Read in editor",
        "Open the last answer in $VISUAL or $EDITOR, read-only",
        lambda screen: screen.editor_actions.view_answer(),
        slash="view",
    ),
    Command(
        "attach",
        "Attach files",
        "Send files or folders with your next message",
        lambda screen: screen.text_actions.attach_file(),
        "f8",
        slash="attach",
        argument="[PATH]",
        run_with=lambda screen, path: screen.text_actions.attach(path),
    ),
    Command(
        "detach",
        "Remove attachments",
        "Send your next message without the attached files",
        lambda screen: screen.conversation.prompt.attachments.set(()),
        slash="detach",
    ),
    Command(
        "texts.import",
        "Import files",
        "Answer from your own files, and faster",
        lambda screen: screen.text_actions.open_import(),
        "f9",
        slash="import",
        argument="[PATH]",
        run_with=lambda screen, path: screen.text_actions.open_import(path),
    ),
    Command(
        "texts.list",
        "Imported files",
        "List, rename or remove imported files",
        lambda screen: screen.text_actions.list_imports(),
        slash="imports",
    ),
    Command(
        "docs",
        "Answer from imports",
        "Search your imports for each question of this chat, or only some, or none",
        lambda screen: screen.retrieval_actions.toggle(),
        slash="docs",
        argument="[once|iterative|knn|off] [IMPORT]…",
        run_with=lambda screen, mode: screen.retrieval_actions.choose(mode),
    ),
    Command(
        "answer.citations",
        "Citations",
        "Show the passages used for the last answer",
        lambda screen: screen.retrieval_actions.show_last_citations(),
        "alt+s",
        slash="citations",
    ),
    Command(
        "scroll.start",
        "First message",
        "Scroll to the start",
        lambda screen: screen.conversation.transcript.go_to_start(),
        "ctrl+home",
    ),
    Command(
        "scroll.end",
        "Last message",
        "Scroll to the end",
        lambda screen: screen.conversation.transcript.follow(),
        "ctrl+end",
    ),
    Command(
        "theme",
        "Change theme",
        "Choose a dark or light theme",
        lambda screen: screen.app.action_change_theme(),
        slash="theme",
    ),
    Command(
        "demo",
        "Demo",
        "See what drafts gain with a larger model, in a minute",
        lambda screen: show_demo(screen.app),
        slash="demo",
    ),
    Command(
        "copy",
        "Stop, copy, clear, quit",
        "Stop the answer, else copy the selection, else clear the prompt; twice: quit",
        lambda screen: screen.copy_actions.interrupt(),
        "ctrl+c",
    ),
    Command(
        "palette",
        "All commands",
        "Search all commands",
        lambda screen: screen.app.action_command_palette(),
        "ctrl+p",
    ),
    Command(
        "quit",
        "Quit",
        "Quit; everything is saved",
        lambda screen: screen.app.exit(),
        "ctrl+q",
        slash="quit",
    ),
)

SLASH = {command.slash: command for command in COMMANDS if command.slash}

FORMER_SLASH = {"sources": "citations"}
"""Former → present names of slash commands."""

SLASH_BY_ID: dict[str, str] = {one.id: f"/{one.slash}" for one in SLASH.values()}
SLASH_NAMES = tuple(SlashName(one.slash, one.argument, one.help) for one in SLASH.values())


def run_slash(screen: CommandTarget, line: SlashLine) -> str:
    """Run a slash command; returns an error in one line, or an empty string."""
    name = line.name.lower()
    command = SLASH.get(FORMER_SLASH.get(name, name))
    if command is None:
        return unknown(line.name, SLASH_NAMES)
    if not line.argument:
        command.run(screen)
    elif command.run_with is None:
        return f"/{command.slash} takes no argument. Begin with // to send it as a message."
    else:
        command.run_with(screen, line.argument)
    return ""


RUN = {command.id: command.run for command in COMMANDS}

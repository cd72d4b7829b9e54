"""Names of files and folders that are skipped, in a folder and in an archive.

They belong to version control or programs, hold secrets, or accompany the chats of an export. A
folder that the person names is read whatever its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

LEFT_BEHIND = frozenset(
    {
        ".git", ".hg", ".svn", ".jj", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache",
        ".tox", ".ipynb_checkpoints", "__MACOSX", ".AppleDouble", ".Spotlight-V100", ".fseventsd",
    }
)  # fmt: skip
"""Folders that are skipped silently."""

CLUTTER = (".DS_Store", "Thumbs.db", "desktop.ini", "*.pyc", "._*")
"""Patterns of files that are skipped silently."""

PROGRAM_FOLDERS = frozenset(
    {
        # Dependencies and build output
        "node_modules", "bower_components", "jspm_packages", "site-packages", ".pnpm-store",
        ".yarn", ".venv", ".nox", ".eggs", ".gradle", ".terraform", ".dart_tool", ".next", ".nuxt",
        ".svelte-kit", ".parcel-cache", ".turbo", ".cache", ".npm", ".cargo", ".rustup",
        # Settings and plug-ins of editors and note-taking programs
        ".obsidian", ".logseq", ".idea", ".vscode", ".vscode-server", ".vs", ".fleet", ".zed",
        ".settings", ".metadata", ".history",
        # Trash, and copies kept for synchronisation
        ".trash", ".Trash", ".Trashes", "$RECYCLE.BIN", "$Recycle.Bin", ".recycle", "#recycle",
        "@Recycle", "@eaDir", ".stversions", ".stfolder", ".sync", ".dropbox.cache", "lost+found",
        "System Volume Information",
    }
)  # fmt: skip
PROGRAM_FOLDER_PATTERNS = (".Trash-*", "*.egg-info", "*.dist-info")
PROGRAM_FOLDER_MARKS = frozenset({"pyvenv.cfg", "CACHEDIR.TAG"})
"""Files that mark a folder of packages or a cache, whatever its name."""
OF_A_PROGRAM = "a program's own folder"

SECRET_NAMES = (
    ".env", ".env.*", ".netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc", ".htpasswd",
    "id_rsa*", "id_ed25519*", "id_ecdsa*", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx",
    "*.keystore",
)  # fmt: skip
"""Files whose purpose is to hold secrets, in forms that redaction does not recognise."""

CONVERSATIONS_FILE = re.compile(r"conversations(-\d+)?\.json")
"""The file with the chats of an export of ChatGPT or Claude."""

PART_OF_EXPORT = "an extra file of a chat export"
EXPORT_COMPANIONS = frozenset(
    {
        "chat.html", "user.json", "users.json", "user_settings.json", "export_manifest.json",
        "message_feedback.json", "model_comparisons.json", "shared_conversations.json",
        "conversation_asset_file_names.json", "shopping.json",
    }
)  # fmt: skip
"""The other files of an unpacked export: duplicates of the chats, or data about the person."""


def is_left_behind(name: str, folder: bool) -> bool:
    """Whether to skip a file or a folder of that name silently."""
    if folder:
        return name in LEFT_BEHIND
    return any(fnmatchcase(name, pattern) for pattern in CLUTTER)


def skip_reason(name: str, folder: bool) -> str:
    """Why a file or a folder of that name is skipped; empty if it is read."""
    if folder:
        patterns = any(fnmatchcase(name, pattern) for pattern in PROGRAM_FOLDER_PATTERNS)
        return OF_A_PROGRAM if patterns or name in PROGRAM_FOLDERS else ""
    secret = any(fnmatchcase(name.lower(), pattern) for pattern in SECRET_NAMES)
    return "usually holds secrets" if secret else ""


def holds_export(names: Iterable[str]) -> bool:
    """Whether one of the file names in a folder is that of an export's chats."""
    return any(CONVERSATIONS_FILE.fullmatch(name) for name in names)

"""Finding the files in what the person named.

Owns which files are looked at: `.gitignore` is respected, symbolic links are not followed, and what
keeps secrets by its name is left alone. Refuses to know formats. The order is that of names, so an
import that was interrupted goes on where it was.

`.gitignore` files as git reads them: one a folder, and the deepest with an opinion decides.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pathspec import GitIgnoreSpec, Pattern
from pathspec.pattern import RegexMatchResult

from app.importing.events import SkippedFile
from app.importing.source_file import MIB, SourceFile, decode
from datastores.errors import InputError


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The files that apply within a folder, outermost first, each with the folder it stands in."""

    files: tuple[tuple[Path, GitIgnoreSpec], ...] = ()

    def within(self, folder: Path) -> IgnoreRules:
        """These and the folder's own. Raises OSError where that cannot be read."""
        return IgnoreRules((*self.files, *_read(folder, folder / ".gitignore")))


def rules_above(root: Path) -> IgnoreRules:
    """The rules of the repository `root` lies in, from its top down to the folder above `root`.

    What is above a folder counts only within one repository, as in git. A file that cannot be read
    rules nothing.
    """
    tops = [folder for folder in (root, *root.parents) if (folder / ".git").exists()]
    if not tops:
        return IgnoreRules()
    top = tops[0]
    between = [folder for folder in reversed(root.parents) if folder.is_relative_to(top)]
    rules = IgnoreRules(_read(top, top / ".git" / "info" / "exclude"))
    for folder in between:
        rules = rules.within(folder)
    return rules


def is_ignored(rules: IgnoreRules, path: Path, folder: bool) -> bool:
    """Whether `path`, whose folder is not ignored itself, is to be left out."""
    for base, spec in reversed(rules.files):
        decision = _decision(spec, path.relative_to(base).as_posix(), folder)
        if decision is not None:
            return decision
    return False


def _decision(spec: GitIgnoreSpec, name: str, folder: bool) -> bool | None:
    """What one file says of `name`, relative to where it stands; None where it says nothing.

    The last pattern that fits decides, as in git. pathspec's own `check_file` answers for whole
    paths, without walking, and differs where a folder is let in again.
    """
    for pattern in reversed(list(spec.patterns)):
        if pattern.include is not None and _fits(pattern, name, folder):
            return bool(pattern.include)
    return None


def _fits(pattern: Pattern, name: str, folder: bool) -> bool:
    """Whether a pattern means `name` itself, not only a folder above it."""
    # A slash is captured behind the folder a pattern means: that of `x/` is the last of "x/", while
    # `x/**`, which fits "x/" too, means what is in x and captures none.
    plain = pattern.match_file(name)
    if plain is not None and _captured(plain) is None:
        return True
    inside = pattern.match_file(f"{name}/") if folder else None
    return inside is not None and _captured(inside) == len(name)


def _captured(result: RegexMatchResult) -> int | None:
    """Where the slash behind the folder stands that a pattern means; None if it captured none."""
    match = result.match
    return match.start(match.lastindex) if match.lastindex else None


def _read(base: Path, path: Path) -> tuple[tuple[Path, GitIgnoreSpec], ...]:
    if not path.is_file() or path.stat().st_size > MIB:
        return ()
    try:
        text, _ = decode(path.read_bytes())
    except InputError:
        # Not a text: git would find no pattern in it that matches anything either.
        return ()
    return ((base, GitIgnoreSpec.from_lines(text.splitlines())),)


VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj"})

SECRET_NAMES = (
    ".env",
    ".env.*",
    ".netrc",
    ".pgpass",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.kdbx",
    "*.keystore",
)
"""Files made to hold secrets, in shapes no pattern knows."""

CONVERSATIONS_FILE = re.compile(r"conversations(-\d+)?\.json")
"""What an export of ChatGPT or Claude keeps its chats in."""

PART_OF_EXPORT = "beside the chats of an export"
EXPORT_COMPANIONS = frozenset(
    {
        "chat.html",
        "user.json",
        "users.json",
        "user_settings.json",
        "export_manifest.json",
        "memories.json",
        "message_feedback.json",
        "model_comparisons.json",
        "shared_conversations.json",
    }
)
"""What lies beside them where it was unpacked: the same again, or about the person."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to import: as number one of a source, or under its name in a folder."""

    source: str
    name: str
    file: SourceFile


def source_of(path: Path) -> str:
    """What a source is called that is imported from `path`."""
    return storable_name(os.path.realpath(path.expanduser()))


def find_files(path: Path, own: frozenset[Path]) -> Iterator[FoundFile | SkippedFile]:
    """Every file in `path`, a file or a folder, in the order of names.

    `own` are specchat's own directories: importing them would feed it its own words for ever.
    """
    root = Path(os.path.abspath(path.expanduser()))
    try:
        mode = root.stat().st_mode
    except OSError as error:
        yield SkippedFile(storable_name(str(path)), read_failure(error))
        return
    root = root.resolve()
    source = source_of(root)
    if not stat.S_ISDIR(mode):
        yield _file(source, root, root.name)
    elif root in own:
        yield SkippedFile(source, "specchat's own data")
    else:
        yield from _folder(source, root, own)


def _folder(source: str, root: Path, own: frozenset[Path]) -> Iterator[FoundFile | SkippedFile]:
    """Depth first, with a list in place of recursion: folders nest deeper than the stack does."""
    waiting = [(root, rules_above(root))]
    while waiting:
        folder, rules = waiting.pop()
        try:
            rules = rules.within(folder)
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield SkippedFile(_name(folder, root), read_failure(error))
            continue
        below = []
        exported = any(CONVERSATIONS_FILE.fullmatch(entry.name) for entry in entries)
        for entry in entries:
            reason = _reason(entry, rules, own)
            if exported and entry.name in EXPORT_COMPANIONS:
                reason = PART_OF_EXPORT
            if reason:
                yield SkippedFile(_name(Path(entry.path), root), reason)
            elif entry.is_dir(follow_symlinks=False):
                below.append((Path(entry.path), rules))
            else:
                path = Path(entry.path)
                yield _file(source, path, str(path.relative_to(root)))
        waiting.extend(reversed(below))


def _file(source: str, path: Path, name: str) -> FoundFile | SkippedFile:
    name = storable_name(name)
    try:
        status = path.stat()
    except OSError as error:
        return SkippedFile(name, read_failure(error))
    if any(fnmatchcase(path.name.lower(), pattern) for pattern in SECRET_NAMES):
        return SkippedFile(name, "made to hold secrets")
    # Opening a pipe would wait for its writer for ever.
    if not stat.S_ISREG(status.st_mode):
        return SkippedFile(name, "not a regular file")
    if not status.st_size:
        return SkippedFile(name, "empty")
    return FoundFile(source, name, SourceFile(name, status.st_size, lambda: path.open("rb")))


def _reason(entry: os.DirEntry[str], rules: IgnoreRules, own: frozenset[Path]) -> str:
    """Why an entry of a folder is not even looked at; empty if it is."""
    if entry.is_symlink():
        return _link(Path(entry.path))
    folder = entry.is_dir(follow_symlinks=False)
    if folder and entry.name in VERSION_CONTROL:
        return "version control's own folder"
    if folder and Path(entry.path) in own:
        return "specchat's own data"
    if is_ignored(rules, Path(entry.path), folder):
        return "ignored by .gitignore"
    return ""


def _link(path: Path) -> str:
    """Why a symbolic link is not followed: what it leads to is in the folder, or was not named."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        # Python before 3.13 reports a loop as RuntimeError.
        loop = isinstance(error, RuntimeError) or error.errno == errno.ELOOP
        return "symbolic link in a loop" if loop else "broken symbolic link"
    return "symbolic link in a loop" if target in path.parents else "symbolic link"


def _name(path: Path, root: Path) -> str:
    return storable_name(str(path.relative_to(root))) if path != root else storable_name(str(root))


def storable_name(name: str) -> str:
    """A path as text that can be stored: bytes that are no UTF-8 are written out as `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def read_failure(error: OSError) -> str:
    """What the system said, as a reason."""
    return f"cannot be read: {(error.strerror or str(error)).lower()}"

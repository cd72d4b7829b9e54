"""`.gitignore` files: which files and folders they leave out.

Patterns mean, byte for byte, what git's `dir.c` and `wildmatch.c` make of them; an invalid one
matches nothing and is no error. Patterns may be hostile, so matching takes time proportional to the
length of the path times that of the pattern: each star takes its first match, which suffices, and
never backtracks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_RULES_BYTES = 2**17
"""A larger `.gitignore` is hardly kept by a person and is not read."""

_STAR, _STARS = "*", "**"
_SLASH = frozenset(b"/")
_FOLDERS = b"(?:[^/]*/)*?"
_ALL = frozenset(range(256))
_CLASSES = {
    b"alnum": rb"[0-9A-Za-z]",
    b"alpha": rb"[A-Za-z]",
    b"blank": rb"[ \t]",
    b"cntrl": rb"[\x00-\x1f\x7f]",
    b"digit": rb"[0-9]",
    b"graph": rb"[!-~]",
    b"lower": rb"[a-z]",
    b"print": rb"[ -~]",
    b"punct": rb"[!-/:-@\[-`{-~]",
    b"space": rb"[ \t\n\v\f\r]",
    b"upper": rb"[A-Z]",
    b"xdigit": rb"[0-9A-Fa-f]",
}
_NAMED = re.compile(rb"\[:([^\]]*):\]")
_NAMED_SETS = {
    name: frozenset(code for code in _ALL if re.match(pattern, bytes([code])))
    for name, pattern in _CLASSES.items()
}

Token = frozenset[int] | str
"""One position of a pattern: the bytes that match there, or a star."""


class _NeverMatchesError(Exception):
    """Git accepts the pattern, but it matches nothing."""


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of a `.gitignore`.

    Attributes:
        matcher: matches the whole path relative to the file's folder, or the name if `by_name`.
        include: it begins with `!` and re-includes what an earlier pattern ignored.
        folders_only: it ends with a slash and matches folders alone.
        by_name: it contains no slash and matches names in any folder below.
    """

    matcher: re.Pattern[bytes]
    include: bool
    folders_only: bool
    by_name: bool


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The `.gitignore` files that apply in a folder, outermost first, each with its own folder."""

    files: tuple[tuple[Path, tuple[IgnorePattern, ...]], ...] = ()

    def within(self, folder: Path) -> IgnoreRules:
        """These rules and the folder's own."""
        path = folder / ".gitignore"
        # Like git, do not follow a link: it may lead anywhere.
        return self if path.is_symlink() else IgnoreRules((*self.files, *_read(folder, path)))

    def ignore(self, path: Path, folder: bool) -> bool:
        """Whether to skip `path`, whose parent folder is not ignored.

        The last matching pattern decides, of the deepest file that has one.
        """
        for base, patterns in reversed(self.files):
            name = os.fsencode(path.relative_to(base).as_posix())
            own = name.rpartition(b"/")[2]
            for pattern in reversed(patterns):
                if pattern.folders_only and not folder:
                    continue
                if pattern.matcher.fullmatch(own if pattern.by_name else name):
                    return not pattern.include
        return False


def rules_above(root: Path) -> IgnoreRules:
    """The rules of the repository that contains `root`, from its top to the folder above `root`.

    As in git, rules above a folder apply only within one repository.
    """
    tops = [folder for folder in (root, *root.parents) if os.path.exists(folder / ".git")]
    if not tops:
        return IgnoreRules()
    top = tops[0]
    between = [folder for folder in reversed(root.parents) if folder.is_relative_to(top)]
    rules = IgnoreRules(_read(top, top / ".git" / "info" / "exclude"))
    for folder in between:
        rules = rules.within(folder)
    return rules


def _read(base: Path, path: Path) -> tuple[tuple[Path, tuple[IgnorePattern, ...]], ...]:
    """The patterns in one file; as in git, none if it is missing or cannot be read."""
    try:
        if not os.path.isfile(path) or path.stat().st_size > MAX_RULES_BYTES:
            return ()
        patterns = tuple(parse_patterns(path.read_bytes()))
    except OSError:
        return ()
    return ((base, patterns),) if patterns else ()


def parse_patterns(content: bytes) -> Iterator[IgnorePattern]:
    """The patterns in a `.gitignore`, in its order, without those that match nothing."""
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        text = _without_trailing_blanks(line.removesuffix(b"\r").partition(b"\0")[0])
        if text and not text.startswith(b"#"):
            try:
                yield _pattern(text)
            except _NeverMatchesError:
                continue


def _without_trailing_blanks(line: bytes) -> bytes:
    """`line` without trailing spaces; a backslash protects the space after it."""
    kept = re.match(rb"(?:[^\\ ]|\\.?| +(?=[^ ]))*", line, re.DOTALL)
    assert kept is not None
    return kept[0]


def _pattern(text: bytes) -> IgnorePattern:
    include, folders_only = text.startswith(b"!"), text.endswith(b"/")
    text = text.removeprefix(b"!").removesuffix(b"/")
    by_name = b"/" not in text
    if by_name:
        (name,) = _segments(text)
        expression = _segment(name)
    else:
        plain = re.match(rb"/?([^*?\[\\]*)", text)
        assert plain is not None
        # git compares the literal prefix separately and parses the rest as a pattern of its own.
        expression = re.escape(plain[1]) + _path(_segments(text[plain.end() :]))
    return IgnorePattern(re.compile(expression, re.DOTALL), include, folders_only, by_name)


def _path(segments: Sequence[Sequence[Token]]) -> bytes:
    """An expression for a whole path; `**` matches any number of folders."""
    groups: list[list[bytes]] = [[]]
    for segment in segments:
        if segment == [_STARS]:
            groups.append([])
        else:
            groups[-1].append(_segment(segment) + b"/")
    first, *rest = (b"".join(group) for group in groups)
    if not rest:
        return first.removesuffix(b"/")
    *middle, last = rest
    begin = first + b"".join(b"(?>" + _FOLDERS + group + b")" for group in middle)
    return begin + (_FOLDERS + last.removesuffix(b"/") if last else b".*")


def _segment(tokens: Sequence[Token]) -> bytes:
    """An expression for one component of a path."""
    pieces = [b""]
    for token in tokens:
        if isinstance(token, frozenset):
            pieces[-1] += _one_of(token)
        else:
            pieces.append(b"")
    first, *rest = pieces
    if not rest:
        return first
    *middle, last = rest
    return first + b"".join(b"(?>[^/]*?" + piece + b")" for piece in middle) + b"[^/]*" + last


def _one_of(allowed: frozenset[int]) -> bytes:
    if not allowed - _SLASH:
        raise _NeverMatchesError
    codes = b"".join(rb"\x%02x" % code for code in sorted(allowed - _SLASH))
    return b"[^/]" if allowed == _ALL else b"[" + codes + b"]"


def _segments(text: bytes) -> list[list[Token]]:
    """The tokens of each component."""
    segments: list[list[Token]] = [[]]
    position = 0
    while position < len(text):
        token, position = _token(text, position)
        if token == _SLASH:
            segments.append([])
        else:
            segments[-1].append(token)
    return segments


def _token(text: bytes, start: int) -> tuple[Token, int]:
    """The token at `start`, and where the next one begins."""
    match text[start : start + 1]:
        case b"*":
            stars = re.compile(rb"\*+").match(text, start)
            assert stars is not None
            return (_STARS if len(stars[0]) > 1 else _STAR), stars.end()
        case b"?":
            return _ALL, start + 1
        case b"[":
            return _byte_class(text, start + 1)
        case b"\\":
            return frozenset(_at(text, start + 1)), start + 2
        case plain:
            return frozenset(plain), start + 1


def _byte_class(text: bytes, start: int) -> tuple[frozenset[int], int]:
    """The bytes in the brackets that open before `start`, and where the next token begins."""
    negated = _at(text, start) in b"!^"
    position = start + negated
    allowed: set[int] = set()
    before = b""  # the beginning of a range, if a hyphen follows
    first = True
    while first or _at(text, position) != b"]":
        first = False
        named = _NAMED.match(text, position)
        if named:
            if named[1] not in _NAMED_SETS:
                raise _NeverMatchesError
            allowed |= _NAMED_SETS[named[1]]
            before, position = b"", named.end()
            continue
        ranged = before and text.startswith(b"-", position) and _at(text, position + 1) != b"]"
        position += bool(ranged)
        position += _at(text, position) == b"\\"
        end = _at(text, position)
        allowed |= set(range(ord(before), ord(end) + 1)) if ranged else set(end)
        before, position = b"" if ranged else end, position + 1
    return frozenset(_ALL - allowed if negated else allowed), position + 1


def _at(text: bytes, position: int) -> bytes:
    """The byte at `position`; a pattern that ends before it matches nothing."""
    if position >= len(text):
        raise _NeverMatchesError
    return text[position : position + 1]

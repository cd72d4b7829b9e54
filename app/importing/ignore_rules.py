"""`.gitignore` files as git reads them: which files and folders they leave out.

Owns the meaning of patterns, byte for byte as in git's `dir.c` and `wildmatch.c`. Every line means
something or nothing; none is an error, as in git. Patterns come from folders of others, so matching
takes no longer than a path's length times a pattern's: each star takes the first place that fits,
which is enough, and none is tried again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_RULES_BYTES = 2**17
"""A larger `.gitignore` is no list that a person keeps; nothing of it is read."""

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
"""One place of a pattern: the bytes that fit there, or a star."""


class _NeverMatchesError(Exception):
    """The pattern is one that git accepts and that matches nothing."""


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of a `.gitignore`.

    Attributes:
        matcher: matches the whole path below the file's folder, or the whole name if `by_name`.
        include: whether it takes back what an earlier pattern ignored.
        folders_only: whether it is for folders alone.
        by_name: whether it is for names in any folder below.
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
        """These and the folder's own."""
        path = folder / ".gitignore"
        # Behind a link git reads none: it may lead anywhere.
        return self if path.is_symlink() else IgnoreRules((*self.files, *_read(folder, path)))

    def ignore(self, path: Path, folder: bool) -> bool:
        """Whether to skip `path`, a folder or not, whose own folder is not ignored.

        The last pattern that matches decides, in the deepest file with one that does.
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
    """The patterns in one file; none if it is missing or, as in git, cannot be read."""
    try:
        if not os.path.isfile(path) or path.stat().st_size > MAX_RULES_BYTES:
            return ()
        patterns = tuple(parse_patterns(path.read_bytes()))
    except OSError:
        return ()
    return ((base, patterns),) if patterns else ()


def parse_patterns(content: bytes) -> Iterator[IgnorePattern]:
    """The patterns in a `.gitignore`, in its order; lines that can match nothing are left out."""
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        text = _without_trailing_blanks(line.removesuffix(b"\r").partition(b"\0")[0])
        if text and not text.startswith(b"#"):
            try:
                yield _pattern(text)
            except _NeverMatchesError:
                continue


def _without_trailing_blanks(line: bytes) -> bytes:
    """`line` without blanks at its end; a backslash keeps the one behind it."""
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
        # git compares the plain beginning by itself: what follows is read as if it began there.
        expression = re.escape(plain[1]) + _path(_segments(text[plain.end() :]))
    return IgnorePattern(re.compile(expression, re.DOTALL), include, folders_only, by_name)


def _path(segments: Sequence[Sequence[Token]]) -> bytes:
    """An expression for a whole path; `**` stands for any number of folders."""
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
    """An expression for what is between two slashes."""
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


def _one_of(fitting: frozenset[int]) -> bytes:
    if not fitting - _SLASH:
        raise _NeverMatchesError
    codes = b"".join(rb"\x%02x" % code for code in sorted(fitting - _SLASH))
    return b"[^/]" if fitting == _ALL else b"[" + codes + b"]"


def _segments(text: bytes) -> list[list[Token]]:
    """The tokens between slashes."""
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
    fitting: set[int] = set()
    before = b""  # the beginning of a range, if a hyphen follows
    first = True
    while first or _at(text, position) != b"]":
        first = False
        named = _NAMED.match(text, position)
        if named:
            if named[1] not in _NAMED_SETS:
                raise _NeverMatchesError
            fitting |= _NAMED_SETS[named[1]]
            before, position = b"", named.end()
            continue
        ranged = before and text.startswith(b"-", position) and _at(text, position + 1) != b"]"
        position += bool(ranged)
        position += _at(text, position) == b"\\"
        end = _at(text, position)
        fitting |= set(range(ord(before), ord(end) + 1)) if ranged else set(end)
        before, position = b"" if ranged else end, position + 1
    return frozenset(_ALL - fitting if negated else fitting), position + 1


def _at(text: bytes, position: int) -> bytes:
    """The byte there; a pattern that ends where one must follow matches nothing."""
    if position >= len(text):
        raise _NeverMatchesError
    return text[position : position + 1]

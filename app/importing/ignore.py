"""`.gitignore` files as git reads them: one a folder, and the deepest with an opinion decides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec, Pattern
from pathspec.pattern import RegexMatchResult

from app.importing.encoding import decode
from app.importing.limits import MIB
from datastores.errors import InputError


@dataclass(frozen=True, slots=True)
class Rules:
    """The files that apply within a folder, outermost first, each with the folder it stands in."""

    files: tuple[tuple[Path, GitIgnoreSpec], ...] = ()

    def within(self, folder: Path) -> Rules:
        """These and the folder's own. Raises OSError where that cannot be read."""
        return Rules((*self.files, *_read(folder, folder / ".gitignore")))


def above(root: Path) -> Rules:
    """The rules of the repository `root` lies in, from its top down to the folder above `root`.

    What is above a folder counts only within one repository, as in git. A file that cannot be read
    rules nothing.
    """
    tops = [folder for folder in (root, *root.parents) if (folder / ".git").exists()]
    if not tops:
        return Rules()
    top = tops[0]
    between = [folder for folder in reversed(root.parents) if folder.is_relative_to(top)]
    rules = Rules(_read(top, top / ".git" / "info" / "exclude"))
    for folder in between:
        rules = rules.within(folder)
    return rules


def ignores(rules: Rules, path: Path, folder: bool) -> bool:
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

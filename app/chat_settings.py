"""The settings of a chat: system prompt, sampling, length and stop sequences, use of imports.

Parses and validates them, from files and from forms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from app.figures import amount
from app.sanitise import one_line
from datastores.errors import InputError

if TYPE_CHECKING:
    from engines.sampler import Sampling

NEW_SEED = -1
"""Draw a new seed for each answer."""

MAX_TOKENS, STOP = "max_tokens", "stop"
"""Names of the settings in `AnswerEnd`, which are stored with those of sampling."""
MAX_SEQUENCES = 16
MAX_SEQUENCE_CHARACTERS = 200
DOCS = "docs"
"""Name of the setting that `DocsSetting` describes."""
DOCS_ONCE, DOCS_ITERATIVE, DOCS_KNN, DOCS_OFF = "once", "iterative", "knn", "off"
DOCS_MODES = (DOCS_ONCE, DOCS_ITERATIVE, DOCS_KNN, DOCS_OFF)
"""How imported texts are used: searched once for each question, searched every few words,
interpolated with the model at each token (KNN-LM), or not at all."""

SETTING_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 100),
    "top_k": (0, 2**31 - 1),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repeat_penalty": (0.01, 100),
    "repeat_window": (1, 2**31 - 1),
    "seed": (NEW_SEED, 2**64 - 1),
    MAX_TOKENS: (1, 2**31 - 1),
}
"""Minimum and maximum of each numeric setting."""

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"(?=\s|$)|([^\s"]+)|(\S)')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """Where answers end: after `max_tokens`, or before one of the texts in `stop`."""

    max_tokens: int
    stop: tuple[str, ...] = ()


def answer_end(chosen: Mapping[str, Any], default: AnswerEnd, where: str = "sampling") -> AnswerEnd:
    """`default` with the settings of `chosen`; stop sequences add to its own.

    Raises:
        InputError: a value of the wrong type or out of range.
    """
    limit, stop = chosen.get(MAX_TOKENS, default.max_tokens), chosen.get(STOP, [])
    if type(limit) is not int:
        raise InputError(f"{where}: {MAX_TOKENS} must be a whole number, not {limit!r}")
    _require_in_range(MAX_TOKENS, limit, where)
    if not isinstance(stop, list | tuple) or not all(isinstance(one, str) for one in stop):
        raise InputError(f"{where}: {STOP} must be a list of texts, not {stop!r}")
    sequences = tuple(dict.fromkeys((*stop, *default.stop)))
    return AnswerEnd(limit, require_sequences(sequences, where))


def require_sequences(sequences: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Return `sequences` if they are valid stop sequences.

    Raises:
        InputError: one is empty or too long, or there are too many.
    """
    if len(sequences) > MAX_SEQUENCES:
        raise InputError(f"{where}: at most {MAX_SEQUENCES} stop sequences, not {len(sequences)}")
    if not all(0 < len(one) <= MAX_SEQUENCE_CHARACTERS for one in sequences):
        most = MAX_SEQUENCE_CHARACTERS
        raise InputError(f"{where}: a stop sequence must have 1 to {most} characters")
    return sequences


def parse_sequences(typed: str) -> list[str]:
    """Parse stop sequences as typed: `END "two words" "\\n\\n"`.

    Raises:
        InputError: a quote is not closed, or a sequence is not valid.
    """
    sequences = list[str]()
    for quoted, word, wrong in _WORD.findall(typed):
        if wrong:
            raise InputError('put a text with spaces between quotes: "\\n\\n"')
        sequences.append(unescaped(word or quoted))
    return list(require_sequences(tuple(sequences), STOP))


def unescaped(text: str) -> str:
    r"""`text` with the characters that `\n`, `\t`, `\r`, `\"` and `\\` stand for."""
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)


def format_sequences(sequences: Iterable[str]) -> str:
    """Stop sequences as they can be typed."""
    return " ".join(map(_quoted, sequences))


def _quoted(sequence: str) -> str:
    text = sequence.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in _ESCAPES.items():
        text = text.replace(character, f"\\{letter}")
    return text if text.isalnum() else f'"{text}"'


def with_overrides(base: Sampling, chosen: Mapping[str, Any], where: str = "sampling") -> Sampling:
    """`base` overridden by `chosen`, without the settings of `answer_end`.

    Args:
        where: origin of the settings, for error messages.

    Raises:
        InputError: an unknown setting, or a value of the wrong type or out of range.
    """
    kinds = {entry.name: type(getattr(base, entry.name)) for entry in fields(base)}
    changed = {}
    for name, value in chosen.items():
        if name in (MAX_TOKENS, STOP):
            continue
        if name not in kinds:
            known = ", ".join(sorted([*kinds, MAX_TOKENS, STOP]))
            raise InputError(f"{where}: unknown setting {name!r}; choose from {known}")
        whole = type(value) is int
        if not whole and (kinds[name] is int or type(value) is not float):
            raise InputError(f"{where}: {name} must be a number, not {value!r}")
        changed[name] = kinds[name](value)
    return require_valid(replace(base, **changed), where)


def require_valid(sampling: Sampling, where: str) -> Sampling:
    """Return `sampling` if it is valid.

    Raises:
        InputError: a value is out of range.
    """
    for name, value in asdict(sampling).items():
        _require_in_range(name, value, where)
    return sampling


def _require_in_range(name: str, value: float, where: str) -> None:
    minimum, maximum = SETTING_RANGES[name]
    if not minimum <= value <= maximum or math.isnan(value):
        raise InputError(f"{where}: {name} must be from {minimum} to {maximum}, not {value}")


def require_docs_mode(mode: str, where: str) -> str:
    """Return `mode` if it is one of `DOCS_MODES`.

    Raises:
        InputError: it is not.
    """
    if mode not in DOCS_MODES:
        choices = f"{', '.join(DOCS_MODES[:-1])} or {DOCS_MODES[-1]}"
        raise InputError(f"{where} must be {choices}, not {one_line(mode, 12)!r}")
    return mode


@dataclass(frozen=True, slots=True)
class DocsSetting:
    """How a chat uses imported texts.

    Attributes:
        mode: one of `DOCS_MODES`.
        imports: the only imports it uses, by path where stored, by name as typed; empty for all.
    """

    mode: str
    imports: tuple[str, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        """The imports of a stored setting; empty for all."""
        return frozenset(self.imports)

    def __str__(self) -> str:
        """The setting as it is stored, and can be typed."""
        return " ".join((self.mode, *map(quoted_name, self.imports)))


def parse_docs(typed: str) -> DocsSetting:
    """Parse a mode, the names of imports, or both: `iterative notes "my work"`.

    Raises:
        InputError: a quote is not closed, or imports are chosen that are not used.
    """
    names, mode = list[str](), ""
    for quoted, word, wrong in _WORD.findall(typed):
        if wrong:
            raise InputError('put a name with spaces between quotes: "my notes"')
        if not mode and not names and word.lower() in DOCS_MODES:
            mode = word.lower()
        else:
            names.append(word or _ESCAPED.sub(lambda found: found[1], quoted))
    if mode == DOCS_OFF and names:
        raise InputError("docs off uses no imports: leave out their names")
    return DocsSetting(mode or DOCS_ONCE, tuple(dict.fromkeys(names)))


def quoted_name(name: str) -> str:
    """The name of an import as `parse_docs` takes it."""
    plain = _WORD.fullmatch(name) and '"' not in name and name.lower() not in DOCS_MODES
    return name if plain else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def parse_setting(name: str, typed: str) -> int | float | str | list[str]:
    """Parse the value typed for setting `name`: `parse_docs`, sequences for `STOP`, a number.

    Raises:
        InputError: the value is malformed or out of range.
    """
    if name == DOCS:
        return str(parse_docs(typed))
    if name == STOP:
        return parse_sequences(typed)
    # Imported here: the sampler needs NumPy, and `specchat ask` the names above.
    from engines.sampler import Sampling

    kind = int if name == MAX_TOKENS else type(getattr(Sampling(), name))
    try:
        value: int | float = kind(typed)
    except ValueError as error:
        wanted = "a whole number" if kind is int else "a number"
        raise InputError(f"must be {wanted}, not {one_line(typed, 12)}") from error
    minimum, maximum = SETTING_RANGES[name]
    if not minimum <= value <= maximum:
        raise InputError(f"must be from {minimum} to {maximum}")
    return value


def format_setting(value: object) -> str:
    """A value as it can be typed."""
    return format_sequences(map(str, value)) if isinstance(value, list) else str(value)


@dataclass(frozen=True, slots=True)
class ChatTuning:
    """The settings of a chat.

    Attributes:
        system: the system prompt.
        sampling: sampling settings, `MAX_TOKENS` and `STOP`, where they differ from the defaults.
        docs: a `DocsSetting` as it is stored; empty for the default.
    """

    system: str = ""
    sampling: Mapping[str, object] = field(default_factory=dict)
    docs: str = ""

    def summary(self) -> str:
        """The settings in a few words; empty if all are defaults."""
        sampling = [
            f"{name.replace('_', ' ')} {format_setting(value)}"
            for name, value in self.sampling.items()
        ]
        docs = parse_docs(self.docs) if self.docs else None
        only = f" in {amount(len(docs.imports), 'import')}" if docs and docs.imports else ""
        used = [f"{DOCS} {docs.mode}{only}"] if docs else []
        return ", ".join([*sampling, *["system prompt"] * bool(self.system), *used])

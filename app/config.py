"""The settings in config.toml, and the global options of the command line.

A file with an unknown setting is an error, so that a misspelt one is not silently ignored. Writing
one setting leaves the rest of the file as it is. What can be measured or derived is not a setting.

The sampler and the TOML parsers are imported where a file is read or written: the options alone
are imported by every command.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from app.chat_settings import DOCS_ONCE, NEW_SEED, require_docs_mode, require_valid
from app.locations import Locations
from datastores.errors import InputError, StoreError
from datastores.storage.files import write_atomic
from engines.llama.gguf import F16, KV_TYPES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from engines.sampler import Sampling

Settings = TypeVar("Settings", bound="DataclassInstance")

DRAFTERS = ("prompt", "recycle", "suffix", "crest", "dense", "draft-model", "mtp", "head")
"""Names of all drafters on the command line."""

NOTIFY_OFF, BELL, OSC_9, OSC_777 = "off", "bell", "osc9", "osc777"
NOTIFICATIONS = (NOTIFY_OFF, BELL, OSC_9, OSC_777)
"""How the end of a long answer is announced."""

FORMER_SETTINGS = {"student": "draft_model"}
"""Former → present names of settings; the file is updated when a setting is written."""

BYTES = ("crest.max_bytes", "chat_states.max_bytes", "programs.max_bytes")
LEAST = {
    **dict.fromkeys(("context", "max_tokens", "crest.max_bytes"), 1),
    **dict.fromkeys(("threads", "learn_after", "notify_after"), 0),
    **dict.fromkeys(("chat_states.max_bytes", "programs.max_bytes"), 0),
}
"""Minimum of each setting that is a count."""

LARGEST, LARGEST_C = 2**62, 2**31 - 1
"""Maximum of the counts in `BYTES`, and of the others, which llama.cpp takes as a C int."""

KINDS = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}
"""Types of settings, as named in errors."""


@dataclass(frozen=True, slots=True)
class Options:
    """The global options. None means not given: the settings or the default decide.

    Attributes:
        model: path of a GGUF file or a safetensors folder, or a model's name.
        data_dir: one directory for everything, instead of the platform's.
        drafters: names from `DRAFTERS`; empty for plain decoding.
        draft_tokens: draft tokens forced at each step; None lets the budget decide.
        exact: output bitwise equal to exact plain decoding, on the CPU; each step takes longer.
        gpu_layers: layers to offload; None for as many as fit.
        rpc: addresses of workers, separated by commas; empty for none.
    """

    model: str | None = None
    data_dir: Path | None = None
    drafters: tuple[str, ...] = DRAFTERS
    draft_tokens: int | None = None
    seed: int | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    exact: bool = False
    gpu_layers: int | None = None
    rpc: str | None = None


@dataclass(frozen=True, slots=True)
class CrestConfig:
    """The n-gram store of texts and past chats, and their suffix index."""

    max_bytes: int = 256 * 2**20
    """Maximum size in bytes, per tokenizer; the rarest phrases are dropped first. A quarter is for
    the places of longer repetitions, of which the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class ChatStatesConfig:
    """What the model read of chats: a reopened chat is not read again."""

    max_bytes: int = 2 * 10**9
    """Maximum size in bytes; the least recently used chats are dropped first; 0 = off."""


def _unseeded() -> Sampling:
    from engines.sampler import Sampling

    return Sampling(seed=NEW_SEED)


@dataclass(frozen=True, slots=True)
class ProgramsConfig:
    """Answers to programs, which ask through `specchat serve`."""

    max_bytes: int = 64 * 2**20
    """Maximum size in bytes of the answers that are kept, to draft and learn from; the oldest are
    dropped first; 0 = keep none. A request with `store: false` is never kept."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings. In the file, `keys`, `crest`, `chat_states`, `programs` and `sampling` are
    tables; the others are at the top."""

    model: str = ""
    """Model to use: a name that `specchat models` lists, a file or a folder; empty = the
    extra `smollm2`'s if that is installed, else the built-in one (`built-in`)."""

    draft_model: str = ""
    """Draft model, a smaller one with the same vocabulary, by name or file; empty = none, new = one
    made on this machine that learns from your model's answers. The built-in model has its own."""

    learn: bool = True
    """Whether the draft model and the draft head learn from your chats while the machine is idle
    and not on battery. Nothing leaves the machine, and private chats are left out."""

    learn_after: int = 60
    """Seconds without a key press or an answer before learning starts."""

    context: int = 8192
    """Context length in tokens (limited by the model)."""

    max_tokens: int = 2048
    """Maximum answer length, in tokens."""

    docs: str = DOCS_ONCE
    """How answers use your imports: once = search them for each question, iterative = search again
    every few words and use one passage at a time, knn = answer in their words and those of your
    other chats, off = not at all.
    A chat can have its own setting."""

    embedding: str = ""
    """Embedding model for searching imports by meaning as well as by words: a name or a file;
    empty = the smallest one on this machine or else the built-in one, off = none."""

    kv_type: str = F16
    """Precision of the KV cache of GGUF models: f16, q8_0 (half the memory) or q4_0 (a quarter; on
    a CPU, drafts are checked at half the speed). Less memory costs some quality."""

    threads: int = 0
    """CPU threads; 0 = one per physical core."""

    rpc: str = ""
    """Workers that hold the layers of GGUF models, as HOST:PORT, separated by commas (see `specchat
    worker`); empty = none. Use a network that you trust: there is no encryption."""

    theme: str = "specchat-dark"
    """Theme: specchat-dark, specchat-light, or any Textual theme."""

    imported_chats: bool = True
    """Whether the list of chats shows imported ones; Alt+H in the list switches."""

    idle: bool = True
    """Whether specchat indexes and learns while you are not using it; Alt+I switches."""

    notify: str = OSC_9
    """Notification when a long answer ends while another window has the focus: osc9 (iTerm2, kitty,
    WezTerm, Ghostty, foot), osc777 (foot, Ghostty, WezTerm, urxvt), bell or off. tmux needs
    focus-events and allow-passthrough."""

    notify_after: int = 10
    """Notify only of answers that took at least this many seconds."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """Key bindings by command name (see the table of keys), such as quit = "ctrl+l". Separate
    several keys with commas; an empty string unbinds the command."""

    crest: CrestConfig = field(default_factory=CrestConfig)
    """The index of common phrases and longer repetitions in your chats and imports."""

    chat_states: ChatStatesConfig = field(default_factory=ChatStatesConfig)
    """Saved model state of your latest long chats, so that they reopen without being read again."""

    programs: ProgramsConfig = field(default_factory=ProgramsConfig)
    """Answers to programs, which ask through `specchat serve`."""

    sampling: Sampling = field(default_factory=_unseeded)
    """Sampling settings. temperature = 0 always takes the likeliest word; seed = -1 uses a new seed
    for each answer."""


def load_config(path: Path) -> Config:
    """The settings in `path`; the defaults if there is no such file.

    Raises:
        InputError: the file is not TOML, or has an unknown setting or an invalid value.
    """
    import tomllib

    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}; fix or remove it") from error
    config = _merged(Config(), _with_present_names(table, path), path, "")
    require_valid(config.sampling, f"{path}: sampling")
    require_docs_mode(config.docs, f"{path}: docs")
    _require_counts(config, path)
    _require_one_of(NOTIFICATIONS, config.notify, f"{path}: notify")
    _require_one_of(KV_TYPES, config.kv_type, f"{path}: kv_type")
    return config


def _with_present_names(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """`table` with former names of settings replaced.

    Raises:
        InputError: a setting is present under both names.
    """
    for former in FORMER_SETTINGS.keys() & table.keys():
        if (name := FORMER_SETTINGS[former]) in table:
            raise InputError(f"{path}: {former} is now called {name}: remove {former}")
    return {FORMER_SETTINGS.get(name, name): value for name, value in table.items()}


def _require_counts(config: Config, path: Path) -> None:
    for names, least in LEAST.items():
        value: Any = config
        for name in names.split("."):
            value = getattr(value, name)
        largest = LARGEST if names in BYTES else LARGEST_C
        if not least <= value <= largest:
            raise InputError(f"{path}: {names} must be from {least} to {largest}, not {value}")


def _require_one_of(known: Iterable[str], value: str, name: str) -> None:
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}, not {value!r}")


def _merged(defaults: Settings, table: Mapping[str, Any], path: Path, prefix: str) -> Settings:
    """`defaults` with the values of `table`, section by section."""
    known = {entry.name: getattr(defaults, entry.name) for entry in fields(defaults)}
    changed = {}
    for name, value in table.items():
        if name not in known:
            raise InputError(
                f"{path}: unknown setting {prefix + name!r}; choose from {', '.join(sorted(known))}"
            )
        changed[name] = _value(known[name], value, path, prefix + name)
    return replace(defaults, **changed)


def _value(default: object, value: Any, path: Path, name: str) -> object:
    """`value`, if it has the type of `default`; an integer is accepted for a float."""
    if is_dataclass(default) and not isinstance(default, type) and isinstance(value, dict):
        return _merged(default, value, path, f"{name}.")
    if isinstance(default, Mapping) and isinstance(value, dict):
        return dict(_texts(value, path, f"{name}."))
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        tables = is_dataclass(default) or isinstance(default, Mapping)
        kind = "a table" if tables else KINDS[type(default)]
        raise InputError(f"{path}: {name} must be {kind}, not {value!r}")
    return value


def _texts(table: Mapping[str, Any], path: Path, prefix: str) -> Iterator[tuple[str, str]]:
    """Name → text; TOML parses a dot in a name as a nested table."""
    for name, value in table.items():
        if isinstance(value, dict):
            for below, text in _texts(value, path, f"{prefix}{name}."):
                yield f"{name}.{below}", text
        elif isinstance(value, str):
            yield name, value
        else:
            raise InputError(f"{path}: {prefix}{name} must be a string, not {value!r}")


def write_setting(locations: Locations, name: str, value: str | bool) -> None:
    """Set the top-level setting `name`; comments and other settings stay as they are.

    An empty string is not written if the setting is absent.

    Raises:
        InputError: the settings file is invalid, and is left as it is.
        StoreError: it cannot be written.
    """
    import tomlkit

    load_config(locations.settings)
    locations.create()
    path = locations.settings.resolve()  # the file itself, if config.toml is a link to it
    text = _renamed(_read(path))
    document = tomlkit.parse(text)
    if name in document:
        document[name] = value
        _replace(path, tomlkit.dumps(document))
    elif value != "":
        # At the top: tomlkit might put it between a comment and the setting it describes.
        _replace(path, tomlkit.dumps({name: value}) + text)


def _renamed(text: str) -> str:
    """The file's `text` with former names of settings replaced."""
    import tomlkit

    document = tomlkit.parse(text)
    for at, (key, item) in enumerate(document.body):
        if key is not None and key.key in FORMER_SETTINGS:
            document.body[at] = tomlkit.key(FORMER_SETTINGS[key.key]), item
    return tomlkit.dumps(document)


def _read(path: Path) -> str:
    """The file's text with its line endings; empty if there is no file."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _replace(path: Path, text: str) -> None:
    """Replace the file atomically, keeping its mode."""
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        write_atomic(path, [text], newline="", mode=mode)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; check its permissions") from error

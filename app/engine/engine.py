"""The engine: a loaded model with its drafters, its budget and what was learned about it.

Owns the choice of the model file, the assembly of everything the decode loop takes, and the model's
lock. Refuses to know chats, attached files and screens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from app.chat_settings import NEW_SEED
from app.config import DRAFTERS, Config, CrestConfig, Options, load_config
from app.engine.chat_states import ChatStates
from app.engine.draft_model import (
    MAX_LIGHT_BYTES,
    VersionedDraftModel,
    draft_model_file,
    draft_model_name,
)
from app.engine.drafters import HEAVY, make_drafters
from app.engine.head import VersionedHead, open_head
from app.engine.learned_state import LearnedState
from app.engine.stores import HasError, Stores, make_observers, open_replay, open_stores
from app.locations import Locations, locate
from app.models.discovery import (
    EMBEDDED_ITEMS,
    EMBEDDED_PASSAGES,
    EMBEDDED_TEMPERATURE,
    embedded,
    model_name,
    resolve_model,
)
from app.models.memory import require_memory
from datastores.errors import ModelError, SpecchatError
from datastores.kv_blocks import KvBlocks
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.budget.loss_limit import DrafterBackoffs
from engines.budget.policies import AdaptiveBudget
from engines.budget.protocol import Budget
from engines.chat_template.prompt_builder import Message
from engines.drafters.protocol import Drafter
from engines.llama.enlarge import AS_IT_IS, Enlargement, enlarge
from engines.sampler import Sampling
from engines.state_encoding import PASS_S
from engines.step import StepObserver
from engines.target import SavableTarget, Target, Vocabulary

if TYPE_CHECKING:
    from engines.hf.model import HfModel
    from engines.llama.model import LlamaModel

    LoadedModel = LlamaModel | HfModel

T = TypeVar("T")

MAX_PASSAGES = 4
"""Of imported texts, put before a question."""


@dataclass(frozen=True, slots=True)
class AnswerDefaults:
    """How answers are drawn and where they end, unless a chat has settings of its own.

    Attributes:
        sampling: with a seed from 0 on.
        seeded: whether the user fixed the seed.
        max_tokens: of one answer.
        limited: whether the command line chose it, so that no chat's setting replaces it.
        default_temperature: whether the temperature is our default, not the user's choice.
    """

    sampling: Sampling
    seeded: bool
    max_tokens: int
    limited: bool = False
    default_temperature: bool = False


@dataclass(slots=True)
class Engine:
    """Everything an answer needs.

    Attributes:
        name: of the model, as `specchat models` lists it.
        path: its file or folder.
        render: messages → the prompt's token ids, stored ids of earlier answers spliced in.
        defaults: how answers are drawn and where they end, unless a chat says otherwise.
        max_passages: of imported texts, put before one question.
        max_items: list items of those passages, put before one question; 0 for all.
        trained_context: most tokens of context that the model allows; 0 if unknown.
        crest_bytes: disk space CREST may take.
        stores: what the drafters draft from.
        busy: the one lock on `target`, whose KV cache serves one caller at a time: `generate` holds
            it for a whole answer, idle encoding and `exclusively` for each pass, a benchmark around
            its own passes. Nobody calls the target without it; tokenizing needs only `vocabulary`,
            and no lock.
        versioned_draft_model: where the draft model comes from; None for none. versioned_head:
            likewise for the draft head.
        stop: texts at which an answer ends, where the model has no token for that.
        restrictions: what does not work with this model, a sentence each.
        learns: whether answers are recorded for them to learn from.
        states: saved states of chats, which are loaded instead of read; None for none.
        observers: see every step after the drafters and the budget, on the decoding thread.
    """

    name: str
    path: Path
    target: Target
    vocabulary: Vocabulary
    render: Callable[[Sequence[Message]], list[int]]
    drafters: list[Drafter]
    budget: Budget
    costs: CostModel
    calibration: AcceptanceModel
    backoffs: DrafterBackoffs
    defaults: AnswerDefaults
    learned: LearnedState
    stop: tuple[str, ...] = ()
    restrictions: tuple[str, ...] = ()
    max_passages: int = MAX_PASSAGES
    max_items: int = 0
    trained_context: int = 0
    crest_bytes: int = CrestConfig().max_bytes
    stores: Stores = field(default_factory=Stores)
    busy: Lock = field(default_factory=Lock)
    observers: list[StepObserver] = field(default_factory=list)
    states: ChatStates | None = None
    versioned_draft_model: VersionedDraftModel | None = None
    versioned_head: VersionedHead | None = None
    learns: bool = False

    @property
    def errors(self) -> list[SpecchatError]:
        """What was damaged when it was opened, and which drafters' stores failed since."""
        failing = [drafter.error for drafter in self.drafters if isinstance(drafter, HasError)]
        replay = self.stores.replay
        recording = replay.error if replay is not None else None
        saving = self.states.error if self.states is not None else None
        found = (self.learned.error, *self.stores.errors, *failing, recording, saving)
        return [error for error in found if error is not None]

    @property
    def remembered(self) -> int | None:
        """States in the dense index that can be drafted from; None if there is no index."""
        return len(self.stores.dense.memory) if self.stores.dense is not None else None

    @property
    def draft_model_name(self) -> str:
        """Name of the draft model; empty where none is loaded."""
        versioned = self.versioned_draft_model if self.stores.draft_model is not None else None
        return versioned.name if versioned is not None else ""

    def exclusively(self, slices: Iterator[T]) -> Generator[T | None]:
        """Yield from `slices`, holding the lock while each one is computed, but not between.

        Yields None, at most every `PASS_S` seconds, while somebody else holds the lock.
        """
        while True:
            if not self.busy.acquire(timeout=PASS_S):
                yield None
                continue
            try:
                done = next(slices)
            except StopIteration:
                return
            finally:
                self.busy.release()
            yield done

    def save_learned(self) -> None:
        """Save what was learned for the next session.

        Raises:
            StoreError: it cannot be written.
        """
        self.learned.save(self.costs, self.calibration, self.backoffs)

    def close(self) -> None:
        """Save what was learned for the next session, and close the stores.

        Raises:
            StoreError: it cannot be written.
        """
        with ExitStack() as steps:
            steps.callback(self.stores.close)
            steps.callback(self.save_learned)
            if self.states is not None:
                steps.callback(self.states.close)


def load(
    options: Options,
    locations: Locations | None = None,
    *,
    larger: Enlargement = AS_IT_IS,
    light: bool = False,
    rows: int = 0,
) -> Engine:
    """Load the chosen model and assemble its engine.

    `larger` loads an enlarged copy: the same tokens at a larger model's costs. `light` leaves out
    drafters that need large libraries, unless they were named. `rows` is that of the largest draft
    tree, if that is more than usual.

    Raises:
        ModelError, InputError: the model cannot run here, or the settings are not understood.
    """
    locations = locations or locate(options.data_dir)
    config = load_config(locations.settings)
    chosen = model_path(options, config, locations)
    path = enlarged_copy(chosen, larger, locations.cache) if larger else chosen
    model = _load_model(path, options, config, locations.probes, rows)
    model.template.start()
    learned, costs, calibration, backoffs = _restore_learned(model, locations)
    names = _without_heavy(options.drafters) if light else options.drafters
    stores = open_stores(names, locations, model.target, model.vocabulary, config.crest.max_bytes)
    versioned = _open_draft_model(
        names, stores, chosen, model, options, config, locations, light=light
    )
    versioned_head = open_head(names, stores, path, model.target, locations)
    if stores.draft_model is not None or versioned_head is not None:
        stores.replay = open_replay(locations, model.target)
    return Engine(
        name=model_name(chosen, locations),
        path=path,
        target=model.target,
        vocabulary=model.vocabulary,
        render=model.render,
        stop=model.template.stop,
        restrictions=model.restrictions,
        drafters=make_drafters(names, stores),
        budget=make_budget(options.draft_tokens, costs, calibration, backoffs),
        costs=costs,
        calibration=calibration,
        backoffs=backoffs,
        defaults=_answer_defaults(options, config, path),
        max_passages=EMBEDDED_PASSAGES if path == embedded() else MAX_PASSAGES,
        max_items=EMBEDDED_ITEMS if path == embedded() else 0,
        trained_context=model.trained_context,
        crest_bytes=config.crest.max_bytes,
        learned=learned,
        stores=stores,
        observers=make_observers(stores),
        versioned_draft_model=versioned,
        versioned_head=versioned_head,
        learns=config.learn,
    )


def _load_model(
    path: Path, options: Options, config: Config, probes: Path, rows: int
) -> LoadedModel:
    """The model, if there is memory for it; `probes` caches which files could be opened."""
    layers = 0 if options.exact else options.gpu_layers
    heads = "mtp" in options.drafters
    require_memory(path, config.context, layers, config.kv_type, heads=heads)
    if path.is_dir():
        return _load_folder(path, options, config)
    from engines.llama.model import load as load_model

    return load_model(
        path,
        gpu_layers=options.gpu_layers,
        threads=config.threads,
        context_length=config.context,
        exact=options.exact,
        probe_cache=probes,
        rows=rows,
        kv_type=config.kv_type,
        heads=heads,
    )


def _restore_learned(
    model: LoadedModel, locations: Locations
) -> tuple[LearnedState, CostModel, AcceptanceModel, DrafterBackoffs]:
    """What earlier sessions measured and learned with the same weights and build."""
    costs, calibration, backoffs = CostModel(), AcceptanceModel(), DrafterBackoffs()
    learned = LearnedState(locations.costs, f"{model.target.fingerprint}/{model.build}")
    learned.restore(costs, calibration, backoffs)
    return learned, costs, calibration, backoffs


def _open_draft_model(
    names: Sequence[str],
    stores: Stores,
    chosen: Path,
    model: LoadedModel,
    options: Options,
    config: Config,
    locations: Locations,
    *,
    light: bool,
) -> VersionedDraftModel | None:
    """If it is one of the drafters `names`, open the draft model.

    See `_versioned_draft_model`. Errors are collected in `stores`.
    """
    versioned: VersionedDraftModel | None = None
    light = light and options.drafters == DRAFTERS
    if "draft-model" in names:
        with stores.collecting_errors():
            versioned = _versioned_draft_model(
                chosen, model, options, config, locations, light=light
            )
    if versioned is not None:
        versioned.open(stores)
    return versioned


def _load_folder(path: Path, options: Options, config: Config) -> LoadedModel:
    """A safetensors folder, through transformers."""
    if options.exact:
        raise ModelError(f"{path} cannot be run with --exact: use a GGUF version of it")
    from engines.hf.model import load as load_model

    device = "cpu" if options.gpu_layers == 0 else "auto"
    return load_model(path, device=device, context_length=config.context, threads=config.threads)


def _versioned_draft_model(
    chosen: Path,
    model: LoadedModel,
    options: Options,
    config: Config,
    locations: Locations,
    *,
    light: bool,
) -> VersionedDraftModel | None:
    """Where the draft model of `model`, opened from the file `chosen`, comes from; None for none.

    With `light`, a large file is left out.

    Raises:
        ModelError: there is no model of the name in the settings.
    """
    path = draft_model_file(config.draft_model, chosen, locations)
    if path is None or (light and path.is_file() and path.stat().st_size > MAX_LIGHT_BYTES):
        return None
    return VersionedDraftModel(
        name=draft_model_name(path, locations),
        original=path,
        target=model.target.fingerprint,
        vocabulary=model.vocabulary,
        context_length=model.target.context_length,
        locations=locations,
        gpu_layers=options.gpu_layers,
        threads=config.threads,
    )


def _without_heavy(names: tuple[str, ...]) -> tuple[str, ...]:
    """The drafters without those that need large libraries, unless the user named them."""
    return tuple(name for name in names if name not in HEAVY) if names == DRAFTERS else names


def with_drafters(
    engine: Engine,
    drafters: Sequence[str],
    draft_tokens: int | None,
    stores: Stores | None = None,
) -> Engine:
    """The same loaded model with new drafters over `stores`; costs are shared."""
    calibration, backoffs = AcceptanceModel(), DrafterBackoffs()
    stores = stores or Stores()
    made = make_drafters(drafters, stores)
    return replace(
        engine,
        drafters=made,
        calibration=calibration,
        backoffs=backoffs,
        budget=make_budget(draft_tokens, engine.costs, calibration, backoffs),
        observers=make_observers(stores),
    )


def open_chat_states(engine: Engine, folder: Path, max_bytes: int) -> None:
    """Save the engine's chats in `folder` from now on, and load them, if its target can.

    Args:
        max_bytes: that they may take; none are saved in 0.
    """
    if max_bytes and isinstance(engine.target, SavableTarget):
        files = KvBlocks(folder, engine.target.state_key, max_bytes)
        engine.states = ChatStates(engine.target, engine.busy, files)


def make_budget(
    draft_tokens: int | None,
    costs: CostModel,
    calibration: AcceptanceModel,
    backoffs: DrafterBackoffs,
) -> Budget:
    """The budget for `--draft-tokens`: measured (None) or a fixed length."""
    if draft_tokens is None:
        return AdaptiveBudget(costs, calibration, backoffs)
    return FixedBudget(draft_tokens, costs, calibration)


def model_path(options: Options, config: Config, locations: Locations) -> Path:
    """The model file: the option's, else the configuration's, else the default one.

    Raises:
        ModelError: there is no model of that name.
    """
    return resolve_model(options.model or config.model, locations)


def enlarged_copy(path: Path, larger: Enlargement, cache: Path) -> Path:
    """An enlarged copy of `path`, cached."""
    changed = path.stat()
    size = f"{larger.wider}x{larger.deeper}"
    name = f"{path.stem}-{changed.st_size}-{changed.st_mtime_ns}-enlarged-{size}.gguf"
    copy = cache / name
    if not copy.exists():
        enlarge(path, larger, copy)
    return copy


def _answer_defaults(options: Options, config: Config, path: Path) -> AnswerDefaults:
    """From the command line, else from the settings; the built-in model is greedy by default."""
    sampling = config.sampling
    unchosen = options.temperature is None and sampling.temperature == Sampling().temperature
    if options.temperature is not None:
        sampling = replace(sampling, temperature=options.temperature)
    elif unchosen and path == embedded():
        sampling = replace(sampling, temperature=EMBEDDED_TEMPERATURE)
    seed = sampling.seed if options.seed is None else options.seed
    return AnswerDefaults(
        sampling=replace(sampling, seed=max(seed, 0)),
        seeded=seed != NEW_SEED,
        max_tokens=options.max_tokens or config.max_tokens,
        limited=options.max_tokens is not None,
        default_temperature=unchosen,
    )

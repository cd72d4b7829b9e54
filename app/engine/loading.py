"""Loading a model with its drafters, draft model and draft head, as one engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.chat_settings import NEW_SEED
from app.config import DRAFTERS, Config, Options, load_config
from app.engine.answerability import Answerability
from app.engine.chat_states import ChatStates
from app.engine.draft_model import (
    MAX_LIGHT_BYTES,
    VersionedDraftModel,
    draft_model_file,
    draft_model_name,
)
from app.engine.draft_resources import DraftResources, make_observers, open_replay, open_resources
from app.engine.drafters import HEAVY, make_drafters
from app.engine.engine import AnswerDefaults, Engine, PassageForm
from app.engine.head import open_head
from app.engine.learned_state import LearnedState
from app.locations import Locations, locate
from app.models.discovery import (
    EMBEDDED_TEMPERATURE,
    embedded,
    model_name,
    resolve_model,
)
from app.models.memory import require_memory
from datastores.errors import ModelError
from datastores.kv_blocks import KvBlocks
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.budget.loss_limit import DrafterBackoffs
from engines.budget.policies import AdaptiveBudget
from engines.budget.protocol import Budget
from engines.llama.enlarge import AS_IT_IS, Enlargement, enlarge
from engines.sampler import Sampling
from engines.target import SavableTarget

if TYPE_CHECKING:
    from engines.hf.model import HfModel
    from engines.llama.model import LlamaModel

    LoadedModel = LlamaModel | HfModel


EMBEDDED_PASSAGE_FORM = PassageForm(max_items=1, instructed=False)
"""The built-in model selects worse than the ranking by words: with one and two items, .75 and .66
exact commands on 120 questions in people's own words about unseen pages."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a model is loaded with: the command line, the settings and the folders.

    Attributes:
        light: whether drafters that take long to load are left out unless they were named.
    """

    options: Options
    config: Config
    locations: Locations
    light: bool = False

    @property
    def is_light(self) -> bool:
        """Whether drafters are left out."""
        return self.light and self.options.drafters == DRAFTERS

    @property
    def workers(self) -> str:
        """Addresses of the workers that hold the model's layers; empty for none."""
        return self.config.rpc if self.options.rpc is None else self.options.rpc

    @property
    def drafters(self) -> tuple[str, ...]:
        """Names of the drafters to use."""
        names = self.options.drafters
        return tuple(name for name in names if name not in HEAVY) if self.is_light else names


def load(
    options: Options,
    locations: Locations | None = None,
    *,
    larger: Enlargement = AS_IT_IS,
    light: bool = False,
    rows: int = 0,
) -> Engine:
    """Load the chosen model and assemble its engine.

    Args:
        larger: how much to enlarge the model: the same tokens at a larger model's costs.
        light: leave out drafters that need large libraries, unless they were named.
        rows: rows of the largest draft tree, if more than usual.

    Raises:
        ModelError, InputError: the model cannot run here, or the settings are invalid.
    """
    locations = locations or locate(options.data_dir)
    config = load_config(locations.settings)
    setup = Setup(options, config, locations, light)
    chosen = model_path(options, config, locations)
    path = enlarged_copy(chosen, larger, locations.cache) if larger else chosen
    model = _load_model(setup, path, rows)
    model.template.start()
    learned, costs, calibration, backoffs = _restore_learned(model, locations)
    names = setup.drafters
    resources = open_resources(
        names, locations, model.target, model.vocabulary, config.crest.max_bytes
    )
    versioned = _open_draft_model(setup, chosen, model, resources)
    versioned_head = open_head(names, resources, model.target, locations)
    if resources.draft_model is not None or versioned_head is not None:
        resources.replay = open_replay(locations, model.target)
    form = EMBEDDED_PASSAGE_FORM if chosen == embedded() else PassageForm()
    return Engine(
        name=model_name(chosen, locations),
        path=path,
        target=model.target,
        vocabulary=model.vocabulary,
        render=model.render,
        render_text=model.template.render_text,
        json_form=model.json_form,
        call_form=model.call_form,
        stop=model.template.stop,
        restrictions=model.restrictions,
        drafters=make_drafters(names, resources),
        budget=make_budget(options.draft_tokens, costs, calibration, backoffs),
        costs=costs,
        calibration=calibration,
        backoffs=backoffs,
        defaults=answer_defaults(options, config, path),
        passage_form=form,
        answerability=Answerability(
            model, locations.answerability, lambda error: resources.errors.append(error)
        )
        if form.instructed and model.reads_layers
        else None,
        trained_context=model.trained_context,
        crest_bytes=config.crest.max_bytes,
        learned=learned,
        resources=resources,
        observers=make_observers(resources),
        versioned_draft_model=versioned,
        versioned_head=versioned_head,
        learns=config.learn,
    )


def _load_model(setup: Setup, path: Path, rows: int) -> LoadedModel:
    """Load the model in the file or folder `path`, if there is memory for it."""
    options, config = setup.options, setup.config
    layers = 0 if options.exact else options.gpu_layers
    heads, workers = "mtp" in options.drafters, setup.workers
    if not workers:  # whose memory is not known before the model is loaded
        require_memory(path, config.context, layers, config.kv_type, heads=heads)
    if path.is_dir():
        if workers:
            raise ModelError(f"{path} cannot be run with --rpc: use a GGUF version of it")
        return _load_folder(path, options, config)
    from engines.llama.model import load as load_model

    return load_model(
        path,
        gpu_layers=options.gpu_layers,
        threads=config.threads,
        context_length=config.context,
        exact=options.exact,
        probe_cache=setup.locations.probes,
        rows=rows,
        kv_type=config.kv_type,
        heads=heads,
        workers=workers,
    )


def _restore_learned(
    model: LoadedModel, locations: Locations
) -> tuple[LearnedState, CostModel, AcceptanceModel, DrafterBackoffs]:
    """The costs and acceptance that earlier sessions learned with the same weights and build."""
    costs, calibration, backoffs = CostModel(), AcceptanceModel(), DrafterBackoffs()
    learned = LearnedState(locations.costs, f"{model.target.fingerprint}/{model.build}")
    learned.restore(costs, calibration, backoffs)
    return learned, costs, calibration, backoffs


def _open_draft_model(
    setup: Setup, chosen: Path, model: LoadedModel, resources: DraftResources
) -> VersionedDraftModel | None:
    """Open the draft model of `model`, loaded from the file `chosen`, if it is a drafter.

    A light setup leaves out a large one. Errors are collected in `resources`.
    """
    if "draft-model" not in setup.drafters:
        return None
    locations = setup.locations
    with resources.collecting_errors():
        path = draft_model_file(setup.config.draft_model, chosen, locations)
        if path is None or (setup.is_light and _is_large(path)):
            return None
        versioned = VersionedDraftModel(
            name=draft_model_name(path, locations),
            original=path,
            target=model.target.fingerprint,
            vocabulary=model.vocabulary,
            context_length=model.target.context_length,
            locations=locations,
            gpu_layers=None if setup.workers else setup.options.gpu_layers,
            threads=setup.config.threads,
        )
        versioned.open(resources)
        return versioned
    return None


def _is_large(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > MAX_LIGHT_BYTES


def _load_folder(path: Path, options: Options, config: Config) -> LoadedModel:
    """A safetensors folder, through transformers."""
    if options.exact:
        raise ModelError(f"{path} cannot be run with --exact: use a GGUF version of it")
    from engines.hf.model import load as load_model

    device = "cpu" if options.gpu_layers == 0 else "auto"
    return load_model(path, device=device, context_length=config.context, threads=config.threads)


def with_drafters(
    engine: Engine,
    drafters: Sequence[str],
    draft_tokens: int | None,
    resources: DraftResources | None = None,
) -> Engine:
    """The same loaded model with new drafters over `resources`; costs are shared."""
    calibration, backoffs = AcceptanceModel(), DrafterBackoffs()
    resources = resources or DraftResources()
    made = make_drafters(drafters, resources)
    return replace(
        engine,
        drafters=made,
        calibration=calibration,
        backoffs=backoffs,
        budget=make_budget(draft_tokens, engine.costs, calibration, backoffs),
        observers=make_observers(resources),
    )


def adopt_versions(engine: Engine) -> None:
    """Draft with versions that were published or chosen since; between two answers only.

    Raises:
        ModelError: the original draft model cannot be read.
        StoreError: its versions cannot be read.
    """
    resources = engine.resources
    for versioned, opened in (
        (engine.versioned_draft_model, resources.draft_model_version),
        (engine.versioned_head, resources.head_version),
    ):
        # Without versions, nothing needs to be read.
        if versioned is None or not (versioned.locations.draft_models / versioned.target).exists():
            continue
        if versioned.versions.current_identity == opened:
            continue
        with engine.busy:
            versioned.open(resources)
            others = [drafter for drafter in engine.drafters if drafter.name != versioned.drafter]
            engine.drafters[:] = [*others, *make_drafters([versioned.drafter], resources)]


def open_chat_states(engine: Engine, folder: Path, max_bytes: int) -> None:
    """Save and load the KV cache of the engine's chats in `folder`, in at most `max_bytes`, if its
    target can."""
    if max_bytes and isinstance(engine.target, SavableTarget):
        files = KvBlocks(folder, engine.target.state_key, max_bytes)
        engine.states = ChatStates(engine.target, engine.busy, files)


def make_budget(
    draft_tokens: int | None,
    costs: CostModel,
    calibration: AcceptanceModel,
    backoffs: DrafterBackoffs,
) -> Budget:
    """The budget for `--draft-tokens`: a fixed length, or adaptive for None."""
    if draft_tokens is None:
        return AdaptiveBudget(costs, calibration, backoffs)
    return FixedBudget(draft_tokens, costs, calibration)


def model_path(options: Options, config: Config, locations: Locations) -> Path:
    """The model file of the options, or else of the settings, or else the default one.

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


def answer_defaults(options: Options, config: Config, path: Path) -> AnswerDefaults:
    """From the command line, or else the settings; the built-in model is greedy by default.

    Args:
        path: the model's file or folder.
    """
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

"""The engine: a loaded model with its drafters, its budget and what was learned about it.

Owns the choice of the model file and the wiring of everything the decode loop takes. Refuses to
know chats, files to attach and screens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from app.config import DRAFTERS, Config, CrestConfig, Options, load_config
from app.engine.learned_state import LearnedState
from app.engine.stores import HEAVY, HasError, Stores, make_drafters, make_observers, open_stores
from app.locations import Locations, locate
from app.models.discovery import EMBEDDED, EMBEDDED_TEMPERATURE, embedded, resolve_model
from app.models.memory import require_memory
from app.sampling_settings import NEW_SEED
from datastores.errors import SpecchatError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.policies import AdaptiveBudget, FixedBudget
from engines.budget.protocol import Budget
from engines.chat_template.prompt_builder import Message
from engines.drafters.protocol import Drafter
from engines.sampler import Sampling
from engines.step import StepObserver
from engines.target import Target, Vocabulary

if TYPE_CHECKING:
    from engines.llama.model import LlamaModel


@dataclass(slots=True)
class Engine:
    """Everything one answer needs, ready to go.

    Attributes:
        name: of the model, for people.
        path: its file.
        render: messages → the prompt's token ids, stored ids of earlier answers spliced in.
        sampling: the person's defaults.
        seeded: whether the person fixed the seed.
        max_tokens: longest answer.
        unchosen_temperature: whether the person left the temperature to us.
        crest_bytes: the most disk CREST may take.
        stores: what the drafters draft from.
        busy: held while an answer is generated; the KV cache serves one at a time.
        observers: see every step beside the drafters and the budget, on the decoding thread.
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
    sampling: Sampling
    seeded: bool
    max_tokens: int
    learned: LearnedState
    unchosen_temperature: bool = False
    crest_bytes: int = CrestConfig().max_bytes
    stores: Stores = field(default_factory=Stores)
    busy: Lock = field(default_factory=Lock)
    observers: list[StepObserver] = field(default_factory=list)

    @property
    def errors(self) -> list[SpecchatError]:
        """What was damaged when it was opened, and is made or learnt anew, and whose store failed
        since; for people."""
        failing = [drafter.error for drafter in self.drafters if isinstance(drafter, HasError)]
        found = (self.learned.error, *self.stores.errors, *failing)
        return [one for one in found if one is not None]

    @property
    def remembered(self) -> int | None:
        """States in the dense index that can be drafted from; None if there is no index."""
        return len(self.stores.dense.memory) if self.stores.dense is not None else None

    def keep(self) -> None:
        """Keep what was learned for the next session.

        Raises:
            StoreError: it cannot be written.
        """
        self.learned.save(self.costs, self.calibration)

    def close(self) -> None:
        """Keep what was learned for the next session, and let the stores go.

        Raises:
            StoreError: it cannot be written.
        """
        try:
            self.keep()
        finally:
            self.stores.close()


def load(
    options: Options,
    locations: Locations | None = None,
    *,
    deepen: int = 0,
    light: bool = False,
    rows: int = 0,
) -> Engine:
    """Load the model the person chose and wire it up.

    With `deepen`, that many layers are added which change no token but cost what layers cost.
    With `light`, drafters that need large libraries are left out, unless the person named them.
    Trees of `rows` rows fit, if that is more than usual.

    Raises:
        ModelError: the file is missing, damaged or cannot run here.
        InputError: the configuration cannot be understood.
    """
    locations = locations or locate(options.data_dir)
    config = load_config(locations.settings)
    path = model_path(options, config, locations)
    if deepen:
        path = deepened(path, deepen, locations.cache)
    model = _opened(path, options, config, locations.cache / "models.json", rows)
    costs, calibration = CostModel(), AcceptanceModel()
    learned = LearnedState(locations.costs, f"{model.target.fingerprint}/{model.build}")
    learned.restore(costs, calibration)
    names = _light(options.drafters) if light else options.drafters
    stores = open_stores(names, locations, model.target, model.vocabulary, config.crest.max_bytes)
    sampling, unchosen = _sampling(options, config, path)
    return Engine(
        name=EMBEDDED if path == embedded() else model.name,
        path=path,
        target=model.target,
        vocabulary=model.vocabulary,
        render=model.render,
        drafters=make_drafters(names, stores),
        budget=make_budget(options.draft_tokens, costs, calibration),
        costs=costs,
        calibration=calibration,
        sampling=sampling,
        unchosen_temperature=unchosen,
        crest_bytes=config.crest.max_bytes,
        seeded=options.seed is not None or config.sampling.seed != NEW_SEED,
        max_tokens=options.max_tokens or config.max_tokens,
        learned=learned,
        stores=stores,
        observers=make_observers(stores),
    )


def _opened(path: Path, options: Options, config: Config, known: Path, rows: int) -> LlamaModel:
    """The model, if there is memory for it; `known` remembers which files were opened before."""
    from engines.llama.model import load as load_model

    require_memory(path, config.context, 0 if options.exact else options.gpu_layers)
    return load_model(
        path,
        gpu_layers=options.gpu_layers,
        threads=config.threads,
        context_length=config.context,
        exact=options.exact,
        probe_cache=known,
        rows=rows,
    )


def _light(names: tuple[str, ...]) -> tuple[str, ...]:
    """Without the drafters that need large libraries, unless the person named them."""
    return tuple(name for name in names if name not in HEAVY) if names == DRAFTERS else names


def equip(
    engine: Engine,
    drafters: Sequence[str],
    draft_tokens: int | None,
    stores: Stores | None = None,
) -> Engine:
    """The same loaded model with fresh drafters over `stores`; costs are shared."""
    calibration = AcceptanceModel()
    stores = stores or Stores()
    made = make_drafters(drafters, stores)
    return replace(
        engine,
        drafters=made,
        calibration=calibration,
        budget=make_budget(draft_tokens, engine.costs, calibration),
        observers=make_observers(stores),
    )


def make_budget(draft_tokens: int | None, costs: CostModel, calibration: AcceptanceModel) -> Budget:
    """The budget for `--draft-tokens`: measured (None) or a fixed length."""
    if draft_tokens is None:
        return AdaptiveBudget(costs, calibration)
    return FixedBudget(draft_tokens, costs, calibration)


def model_path(options: Options, config: Config, locations: Locations) -> Path:
    """The model file: the option's, else the configuration's, else the embedded one.

    Raises:
        ModelError: there is no model of the name that was given.
    """
    return resolve_model(options.model or config.model, locations)


def deepened(path: Path, layers: int, cache: Path) -> Path:
    """`path` with function-preserving layers added, made once and kept in the cache."""
    from engines.llama.gguf import deepen

    changed = path.stat()
    name = f"{path.stem}-{changed.st_size}-{changed.st_mtime_ns}-deepened-{layers}.gguf"
    copy = cache / name
    if not copy.exists():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        deepen(path, layers, copy)
    return copy


def _sampling(options: Options, config: Config, path: Path) -> tuple[Sampling, bool]:
    """The defaults for answers, and whether their temperature is nobody's choice but ours."""
    sampling = config.sampling
    unchosen = options.temperature is None and sampling.temperature == Sampling().temperature
    if options.temperature is not None:
        sampling = replace(sampling, temperature=options.temperature)
    elif unchosen and path == embedded():
        sampling = replace(sampling, temperature=EMBEDDED_TEMPERATURE)
    if options.seed is not None:
        sampling = replace(sampling, seed=options.seed)
    return replace(sampling, seed=max(sampling.seed, 0)), unchosen

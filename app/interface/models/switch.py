"""Loads the first model, switches to another, and turns learning and idle work on and off.

The first launch also shows a hint about other models, once, in the empty chat.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path

from app.config import load_config, write_setting
from app.conversation.session_statistics import SessionStatistics
from app.interface.chat.conversation import Conversation
from app.interface.chat.prompt import ASK_ANYTHING
from app.interface.keymap import keymap_of
from app.interface.models.download_task import DownloadTask
from app.interface.models.picker import ModelPicker
from app.interface.workers import start_worker
from app.locations import Locations
from app.models.description import FoundModel
from app.models.discovery import default_model, find_models, resolve_model
from app.models.safetensors import CPU, torch_device
from app.models.selection import can_chat, choose, first_launch_offer
from app.sanitise import one_line
from datastores.errors import InputError, SpecchatError, StoreError
from engines.llama.devices import unused_gpu

LOADING = "loading the model…"
NO_MODEL = "no model"
PAUSED = "idle work paused"
IDLE_PAUSED = "Idle work paused. Nothing is indexed or learned until you resume it."
IDLE_RESUMED = "Idle work resumed: indexing and learning."


class ModelSwitch:
    """Switches the model of a conversation."""

    def __init__(
        self,
        conversation: Conversation,
        session_statistics: SessionStatistics,
        locations: Locations,
    ) -> None:
        self._conversation = conversation
        self._session_statistics = session_statistics
        self._locations = locations
        self._download_task = DownloadTask(conversation, locations)

    async def load(self) -> None:
        """Load the first model."""
        try:
            paused = not load_config(self._locations.settings).idle
        except InputError:
            paused = False  # loading the model reads the settings too, and shows the error
        self._conversation.topbar.paused = PAUSED if paused else ""
        if await self._await_model(self._conversation.model_thread.load()):
            await self._show_first_launch_hint()

    def pick(self) -> None:
        """Open the picker."""
        model = self._conversation.model_thread.model
        in_use = model.path if model is not None else None
        picker = ModelPicker(self._locations, in_use, self._download_task)
        self._conversation.app.push_screen(picker, self._chosen)

    def switch_to(self, name: str) -> None:
        """Switch to the model with this name or path."""
        if self._conversation.is_free():
            start_worker(self._conversation, self._resolve_and_switch, name)

    def names(self) -> list[str]:
        """The names of all models on this machine. Call it in a thread."""
        return [found.name for found in find_models(self._locations).candidates]

    def toggle_learning(self) -> None:
        """Turn learning on or off, and store that in the settings."""
        model, notify = self._conversation.model_thread.model, self._conversation.notify
        if model is None or model.engine is None or model.learner is None:
            notify("This model has nothing to train: no draft model, no draft head.")
            return
        learns = not model.engine.learns
        try:
            write_setting(self._locations, "learn", learns)
        except SpecchatError as error:
            self._conversation.show_error(error)
            return
        model.engine.learns = learns
        model.learner.switch(learns and not self._conversation.topbar.paused)
        notify(
            "Learning is on: drafts improve from your chats while the machine is idle."
            if learns
            else "Learning is off: nothing is trained on your chats."
        )

    def toggle_idle(self) -> None:
        """Pause or resume idle work, and store that in the settings."""
        conversation, enabled = self._conversation, bool(self._conversation.topbar.paused)
        try:
            write_setting(self._locations, "idle", enabled)
        except SpecchatError as error:
            conversation.show_error(error)
            return
        conversation.topbar.paused = "" if enabled else PAUSED
        model = conversation.model_thread.model
        if model is not None:
            model.switch_idle(enabled)
        conversation.notify(IDLE_RESUMED if enabled else IDLE_PAUSED, timeout=4)

    async def shutdown(self) -> None:
        """Stop the download."""
        await self._download_task.shutdown()

    def _chosen(self, found: FoundModel | None) -> None:
        if found is not None and self._conversation.is_free():
            start_worker(self._conversation, self._switch, found.name, found.path)

    async def _resolve_and_switch(self, name: str) -> None:
        try:
            path = await asyncio.to_thread(resolve_model, name, self._locations, None, can_chat)
        except SpecchatError as error:
            self._conversation.show_error(error)
        else:
            await self._switch(name, path)

    async def _switch(self, model: str, path: Path) -> None:
        self._conversation.topbar.model = ""
        if not await self._await_model(self._conversation.model_thread.switch(str(path))):
            return
        self._session_statistics.reset()
        self._conversation.redraw_panel()
        try:
            chosen = await asyncio.to_thread(choose, model, self._locations)
        except SpecchatError as error:
            self._conversation.show_error(error)
        else:
            name = one_line(chosen.name, 80)
            self._conversation.notify(f"Switched to {name}", markup=False, timeout=4)

    async def _await_model(self, loading: Future[None]) -> bool:
        """Await `loading` and show the current model; returns whether it is the requested one."""
        bar, thread = self._conversation.topbar, self._conversation.model_thread
        bar.failed, bar.state = False, LOADING
        try:
            await asyncio.wrap_future(loading)
        except SpecchatError as error:
            self._conversation.show_error(error)
            return False
        finally:
            bar.failed = thread.model is None
            bar.state = NO_MODEL if bar.failed else ""
            bar.model = thread.model.name if thread.model is not None else ""
            self._conversation.set_hint(thread.model.hint if thread.model is not None else "")
            asks = thread.model.asks if thread.model is not None else ""
            self._conversation.prompt.placeholder = asks or ASK_ANYTHING
        return True

    async def _show_first_launch_hint(self) -> None:
        model = self._conversation.model_thread.model
        if model is None or model.path != default_model():
            return
        try:
            hint = await asyncio.to_thread(first_launch_hint, self._locations)
        except SpecchatError as error:
            self._conversation.show_error(error)
        else:
            hint = keymap_of(self._conversation).fill(hint)
            self._conversation.set_hint("\n".join(filter(None, (model.hint, hint))))


def first_launch_hint(locations: Locations) -> str:
    """The hint of the first launch; empty at later ones. Call it in a thread.

    `{models}` in it is a placeholder for the key of the model picker.

    Raises:
        InputError: the settings file is invalid.
        ModelError: a model file disappeared while it was read.
        StoreError: the file that marks the hint as shown cannot be written.
    """
    if locations.offered.exists():
        return ""
    found = len(first_launch_offer(locations))
    try:
        locations.offered.touch(mode=0o600)
    except OSError as error:
        raise StoreError(
            f"cannot write {locations.offered}: {error.strerror}; check its permissions"
        ) from error
    hints = (hint_about(found), hint_about_pytorch(unused_gpu(), torch_device()))
    return "\n".join(filter(None, hints))


def hint_about_pytorch(unused: str, device: str) -> str:
    """The hint if PyTorch can use a GPU that this build of llama.cpp cannot."""
    if not unused or device == CPU:
        return ""
    return f"PyTorch can already use your {unused} for safetensors models."


def hint_about(found: int) -> str:
    """The hint if `found` other models are on this machine."""
    if not found:
        return "Press {models} to get a larger model."
    if found == 1:
        return "Press {models} to pick another model found here, or to get one."
    return f"Press {{models}} to pick one of {found} other models found here."

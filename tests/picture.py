"""The picture in the README, recorded from a real session: `python -m tests.picture`.

Owns the session: the note that is imported and what is asked. The model is SmolLM2 of the extra
`test`; words and figures are what it writes, and how fast, on the machine that records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.pilot import Pilot

from app.config import Options
from app.interface.app import Specchat
from app.locations import locate, model_folders
from app.runtime.model_thread import Model
from app.runtime.open_model import open_model
from datastores.chats.history import History

PICTURE = Path(__file__).parents[1] / "assets" / "session.svg"
SIZE = (100, 30)
"""Columns and lines."""
PANEL_S = 1.0
"""Seconds until the panel shows the figures of an answer that has ended."""

NOTE = """# Overnight bread

500 g flour, 350 ml water, 10 g salt, 2 g dry yeast.

1. Mix everything in a large bowl in the evening, cover it, and leave it for 12 hours.
2. In the morning, fold the dough four times and shape it into a ball.
3. Let it rise for one hour on a floured cloth.
4. Heat the oven with a cast-iron pot inside to 240 °C.
5. Bake the bread in the covered pot for 30 minutes, then without the lid for 15 minutes.
6. Let it cool on a rack for at least one hour before you cut it.
"""
QUESTIONS = (
    "List the six steps of the overnight bread.",
    "Repeat the list.",
)


def record(model: Path, folder: Path) -> str:
    """Import the note and ask `model` the questions, with stores in `folder`; the screen as SVG."""
    notes = folder / "notes"
    notes.mkdir()
    (notes / "bread.md").write_text(NOTE)
    locations = locate(folder / "data")
    locations.create()
    locations.offered.touch()  # no offer of other models
    history = History.open(locations.history)
    options = Options(model=str(model), temperature=0.0)

    def load(choice: str | None) -> Model:
        notify = (app.indexer_changed, app.idle_changed, app.learning_changed)
        return open_model(options, locations, history, *notify)

    app = Specchat(history, locations, load)
    try:
        return asyncio.run(_play(app, notes))
    finally:
        app.leave()
        history.close()


async def _play(app: Specchat, notes: Path) -> str:
    conversation, importing = app.chat_screen.conversation, app.chat_screen.import_task
    async with app.run_test(size=SIZE) as pilot:
        await _until(pilot, lambda: conversation.model_thread.model is not None)
        importing.begin(str(notes))
        await _until(pilot, lambda: importing.state.indexed_tokens > 0)
        for question in QUESTIONS:
            conversation.send(question)
            await _until(pilot, lambda: conversation.turn is None)
            await pilot.pause(PANEL_S)
        app.clear_notifications()
        await pilot.pause(PANEL_S)
        return app.export_screenshot(title="specchat")


async def _until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    while not condition():
        await pilot.pause(0.05)


if __name__ == "__main__":
    models = sorted(path for place in model_folders().packaged for path in place.glob("*.gguf"))
    with TemporaryDirectory() as temporary:
        PICTURE.write_text(record(models[0], Path(temporary)))

"""The area under a notification is redrawn when it disappears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.geometry import Region

from app.interface.screen import ChatScreen
from tests.app.interface.conftest import Stage, ready, until


async def test_what_a_notification_covered_is_drawn_again(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Region, ...]] = []
    refresh = ChatScreen.refresh

    def draw(screen: ChatScreen, *regions: Region, **how: Any) -> ChatScreen:
        drawn.append(regions)
        return refresh(screen, *regions, **how)

    made = stage()
    async with made.app.run_test(notifications=True) as pilot:
        await ready(pilot, made)
        screen = made.app.chat_screen
        for text in ("the first line", "the second line"):
            made.conversation.notify(text, timeout=60)
        await until(pilot, lambda: len(screen.query("Toast")) == 2)
        monkeypatch.setattr(ChatScreen, "refresh", draw)
        await screen.query("ToastHolder").last().remove()
        await until(pilot, lambda: () in drawn)

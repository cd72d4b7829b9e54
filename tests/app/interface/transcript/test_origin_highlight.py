"""The words of live and stored answers are coloured by origin."""

from __future__ import annotations

from datastores.chats.history import History
from tests.app.interface.conftest import Make, ask, shown


async def test_words_are_highlighted_with_letters(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, made, "copy?")
        assert "ᴾ" not in shown(made)
        await pilot.press("f3")
        assert "ᵀ**copy a ᴴdirectory**" in shown(made)
        chat = made.conversation.chat
        await pilot.press("ctrl+n")
        made.conversation.open(chat)
        assert "ᵀ**copy a ᴴdirectory**" in shown(made)
        await pilot.press("f3")
        assert "ᴾ" not in shown(made)


async def test_an_answer_without_known_origins_is_shown_as_markdown(
    stage: Make, history: History
) -> None:
    chat = history.create_chat("old").id
    asked = history.add_message(chat, None, "user", "why?")
    history.add_message(
        chat, asked.id, "assistant", "**Because**", statistics={"origins": [[3, "x"]]}
    )
    made = stage()
    async with made.app.run_test() as pilot:
        made.conversation.open(chat)
        await pilot.press("f3")
        assert "Because" in shown(made)
        assert "*" not in shown(made)

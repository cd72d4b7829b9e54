"""Long conversations in parts: less work for the template, and the same prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from engines.chat_template.formats import ChatML
from engines.chat_template.parts import PART_TURNS, find_seams, parts_between
from engines.chat_template.placement import Placer
from engines.chat_template.prompt_builder import ASSISTANT, SYSTEM, USER, Literal, Message, Tool

CHAT = [USER, ASSISTANT] * 500 + [USER]


class CountingChatML(ChatML):
    """Records the number of messages of each rendering."""

    def __init__(self) -> None:
        self.messages: list[int] = []

    def render(
        self, messages: Sequence[Mapping[str, object]], others: str, tools: Sequence[Tool] = ()
    ) -> str:
        self.messages.append(len(messages))
        return super().render(messages, others)


class NumberingChatML(CountingChatML):
    """Numbers the turns, as ChatGLM's template does."""

    def render(
        self, messages: Sequence[Mapping[str, object]], others: str, tools: Sequence[Tool] = ()
    ) -> str:
        numbered = [
            {**message, "content": f"[{number}] {message['content']}"}
            for number, message in enumerate(messages)
        ]
        return super().render(numbered, others)


def conversation(roles: Sequence[str]) -> list[Message]:
    return [Message(role, f"{number}") for number, role in enumerate(roles)]


@pytest.mark.parametrize("roles", [CHAT, [SYSTEM, *CHAT], [*CHAT[:-1], SYSTEM, USER]])
def test_no_part_is_long_and_every_message_is_in_one(roles: list[str]) -> None:
    parts = parts_between(find_seams(roles), roles)
    assert sorted({index for part in parts for index in part}) == list(range(len(roles)))
    assert max(map(len, parts)) <= 2 * (PART_TURNS + 4)
    assert all(part[0] == 0 for part in parts) == (roles[0] == SYSTEM)
    assert all(roles[part[-1]] == USER for part in parts)


def test_a_short_conversation_and_one_without_turns_are_whole() -> None:
    assert find_seams(CHAT[: 2 * PART_TURNS]) == []
    assert find_seams([USER] * 500) == []
    assert find_seams([ASSISTANT] * 500 + [USER]) == []


def test_a_template_never_gets_a_long_conversation_at_once() -> None:
    renderer = CountingChatML()
    messages = conversation(CHAT)
    segments = Placer(renderer).place(messages).segments
    assert max(renderer.messages) <= 2 * (PART_TURNS + 4)
    assert sum(renderer.messages) < 1.2 * len(messages)
    assert segments is not None
    text = "".join(segment.text for segment in segments)
    arranged = [{"role": message.role, "content": message.content} for message in messages]
    assert text == ChatML().render(arranged, "none")


def test_a_template_that_numbers_its_turns_renders_the_whole() -> None:
    renderer = NumberingChatML()
    segments = Placer(renderer).place(conversation(CHAT)).segments
    assert max(renderer.messages) == len(CHAT)
    assert segments is not None
    assert isinstance(segments[-3], Literal)
    assert segments[-3].text.endswith(f"[{len(CHAT) - 1}] ")

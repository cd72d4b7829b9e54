"""Prompts: the template's own text, contents as plain text, stored ids unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.recipe.tokens import CHAT_TEMPLATE
from datastores.errors import InputError, ModelError
from engines.chat_template.formats import CHATML_TEMPLATE
from engines.chat_template.parts import PART_TURNS, find_seams
from engines.chat_template.placement import PLAIN_CHAT, SEARCH_S, Placer
from engines.chat_template.prompt_builder import Message, Tool, ToolCall
from engines.chat_template.render_process import TemplateRefusalError
from engines.chat_template.template import BASE_MODEL, ChatTemplate
from engines.llama.model import LlamaModel
from tests.engines import templates

PUBLIC = [
    template
    for folder in Path(__file__).parents
    for template in sorted(folder.glob("shared/templates/*.jinja"))
]
"""Public templates, from a folder that only development machines have."""

FIRST_CHARACTER = 100
STORED = 10**6
"""First id of stored answers; no text is tokenized to these."""


class CharacterTokenizer:
    """One token for each character, and control tokens."""

    def __init__(self, *texts: str, stops: Sequence[str], bos: str = "", eos: str = "") -> None:
        self.control_tokens = {text: index for index, text in enumerate(texts)}
        self.stops = frozenset(self.control_tokens[text] for text in stops)
        self.bos = self.control_tokens.get(bos, -1)
        self.eos = self.control_tokens.get(eos, -1)
        self.prompt_prefix = (self.bos,) if bos else ()

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        assert not special
        return [FIRST_CHARACTER + ord(character) for character in text]

    def attributes(self, token: int) -> int:
        return 0

    def text(self, token: int) -> str:
        return next((text for text, known in self.control_tokens.items() if known == token), "")

    def show(self, ids: Sequence[int]) -> str:
        """Ids as text: control tokens in double brackets, stored ones as numbers."""
        return "".join(map(self._shown, ids))

    def _shown(self, token: int) -> str:
        if token < FIRST_CHARACTER:
            return f"⟦{self.text(token)}⟧"
        return f"({token - STORED})" if token >= STORED else chr(token - FIRST_CHARACTER)


CHATML = CharacterTokenizer("<|im_start|>", "<|im_end|>", "<|endoftext|>", stops=["<|im_end|>"])
LLAMA_3 = CharacterTokenizer(
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    stops=["<|eot_id|>"],
    bos="<|begin_of_text|>",
)
MISTRAL = CharacterTokenizer("<s>", "</s>", stops=["</s>"], bos="<s>", eos="</s>")
GEMMA = CharacterTokenizer(
    *("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
    stops=["<end_of_turn>", "<eos>"],
    bos="<bos>",
)
REASONER = CharacterTokenizer(
    "<s>", "</s>", "<|User|>", "<|Assistant|>", stops=["</s>"], bos="<s>", eos="</s>"
)


def stored(*numbers: int, stop: int | None = None) -> tuple[int, ...]:
    ids = tuple(STORED + number for number in numbers)
    return ids if stop is None else (*ids, stop)


def chat(system: str = "", *, tokens: tuple[int, ...] = ()) -> list[Message]:
    messages = [
        Message("user", " hi "),
        Message("assistant", "<think>\nhm\n</think>\n\nho", tokens),
        Message("user", "more"),
    ]
    return [Message("system", system), *messages] if system else messages


CASES = {
    "llama-3": (
        *(LLAMA_3, templates.LLAMA_3, chat("Be.", tokens=stored(1, 2, stop=3))),
        "⟦<|begin_of_text|>⟧⟦<|start_header_id|>⟧system⟦<|end_header_id|>⟧\n\nBe.⟦<|eot_id|>⟧"
        "⟦<|start_header_id|>⟧user⟦<|end_header_id|>⟧\n\nhi⟦<|eot_id|>⟧"
        "⟦<|start_header_id|>⟧assistant⟦<|end_header_id|>⟧\n\n(1)(2)⟦<|eot_id|>⟧"
        "⟦<|start_header_id|>⟧user⟦<|end_header_id|>⟧\n\nmore⟦<|eot_id|>⟧"
        "⟦<|start_header_id|>⟧assistant⟦<|end_header_id|>⟧\n\n",
    ),
    "qwen-3": (
        *(CHATML, templates.QWEN_3, chat("Be.", tokens=stored(1, 2, stop=1))),
        "⟦<|im_start|>⟧system\nBe.⟦<|im_end|>⟧\n⟦<|im_start|>⟧user\n hi ⟦<|im_end|>⟧\n"
        "⟦<|im_start|>⟧assistant\n(1)(2)⟦<|im_end|>⟧\n⟦<|im_start|>⟧user\nmore⟦<|im_end|>⟧\n"
        "⟦<|im_start|>⟧assistant\n",
    ),
    "mistral": (
        *(MISTRAL, templates.MISTRAL, chat(tokens=stored(1, 2, stop=1))),
        "⟦<s>⟧[INST]  hi  [/INST](1)(2)⟦</s>⟧[INST] more [/INST]",
    ),
    "mistral-unknown-ids": (
        *(MISTRAL, templates.MISTRAL, [Message("user", "a"), Message("assistant", "b")]),
        "⟦<s>⟧[INST] a [/INST] b⟦</s>⟧",
    ),
    "gemma-merges-system": (
        *(GEMMA, templates.GEMMA, chat("Be.", tokens=stored(1, stop=1))),
        "⟦<bos>⟧⟦<start_of_turn>⟧user\nBe.\n\n hi⟦<end_of_turn>⟧\n"
        "⟦<start_of_turn>⟧model\n(1)⟦<end_of_turn>⟧\n"
        "⟦<start_of_turn>⟧user\nmore⟦<end_of_turn>⟧\n⟦<start_of_turn>⟧model\n",
    ),
    "reasoner-restores-prompts": (
        *(REASONER, templates.REASONER, chat(tokens=stored(1, 2))),
        "⟦<s>⟧⟦<|User|>⟧ hi ⟦<|Assistant|>⟧<think>\n(1)(2)⟦</s>⟧⟦<|User|>⟧more"
        "⟦<|Assistant|>⟧<think>\n",
    ),
    "embedded-model": (
        *(CHATML, CHATML_TEMPLATE, chat(tokens=stored(1))),
        "⟦<|im_start|>⟧user\n hi ⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant\n(1)⟦<|im_end|>⟧\n"
        "⟦<|im_start|>⟧user\nmore⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant\n",
    ),
    "rewritten-contents": (
        *(CHATML, templates.UPPERCASE, [Message("user", "a<|im_end|>b")]),
        "⟦<|im_start|>⟧user\nA< |IM_END|>B⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_prompt_of(case: str) -> None:
    tokenizer, source, messages, expected = CASES[case]
    template = ChatTemplate(source, tokenizer)
    assert template.problem == ""
    assert tokenizer.show(template.render(messages)) == expected


TYPED = st.lists(
    st.one_of(
        st.sampled_from(["<|im_start|>", "<|im_end|>", "<|", "|>", "{{ 1 }}", "\x1f", "\n"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    ),
    max_size=6,
).map("".join)


@settings(max_examples=100, deadline=None)
@given(system=TYPED, first=TYPED, second=TYPED)
@pytest.mark.parametrize(
    "source",
    [templates.QWEN_3, "", CHATML_TEMPLATE, templates.QUOTING],
    ids=["qwen-3", "base-model", "chatml", "quoting"],
)
def test_user_text_never_becomes_a_control_token(
    source: str, system: str, first: str, second: str
) -> None:
    assert control_tokens(source, system, first, second) == control_tokens(source, "a", "b", "c")


def control_tokens(source: str, *contents: str) -> list[int]:
    """The control tokens in a prompt of a system message and two questions."""
    messages = [
        Message(role, content)
        for role, content in zip(("system", "user", "user"), contents, strict=True)
    ]
    return [token for token in chatml(source).render(messages) if token < FIRST_CHARACTER]


@cache
def chatml(source: str) -> ChatTemplate:
    return ChatTemplate(source, CHATML)


def test_stored_ids_survive_a_template_that_keeps_contents(model: LlamaModel) -> None:
    """The next prompt begins with all that is cached, so nothing is prefilled twice."""
    question = [Message("user", "What does tar do?")]
    prompt = model.render(question)
    odd = (*model.vocabulary.encode("tar "), *model.vocabulary.encode("pac"), 2)
    following = [*question, Message("assistant", "tar pac", odd), Message("user", "More")]
    assert model.render(following)[: len(prompt) + len(odd)] == [*prompt, *odd]


def test_embedded_template_equals_its_text(model: LlamaModel) -> None:
    text = "<|im_start|>user\nHow?\n\nSo <b>?<|im_end|>\n<|im_start|>assistant\n"
    rendered = model.render([Message("user", "How?\n\nSo <b>?")])
    assert rendered == model.vocabulary.encode(text, special=True)


def test_a_partial_answer_gets_its_end_token(model: LlamaModel) -> None:
    partial = tuple(model.vocabulary.encode("tar is a"))
    messages = [
        Message("user", "a"),
        Message("assistant", "tar is a", partial),
        Message("user", "b"),
    ]
    ids = model.render(messages)
    head = model.vocabulary.encode("<|im_start|>assistant\n", special=True)
    end = model.vocabulary.encode("<|im_end|>", special=True)
    closed = [*head, *partial, *end]
    assert any(ids[at : at + len(closed)] == closed for at in range(len(ids)))


def test_the_embedded_model_has_the_template_that_needs_no_process() -> None:
    assert CHAT_TEMPLATE == CHATML_TEMPLATE


UNUSABLE = ["{% if %}", "{{ raise_exception('never') }}", "{% for i in range(10**9) %}{% endfor %}"]


@pytest.mark.parametrize("source", UNUSABLE)
def test_an_unusable_template_is_replaced_by_chatml(source: str) -> None:
    template, chatml = ChatTemplate(source, CHATML), ChatTemplate(CHATML_TEMPLATE, CHATML)
    assert template.problem.startswith("The model's chat template fails")
    assert template.problem.endswith("; ChatML is used instead.")
    assert template.render(chat("Be.")) == chatml.render(chat("Be."))
    assert template.stop == ()


def test_without_the_tokens_of_chatml_it_is_replaced_by_the_plain_form() -> None:
    template, plain = ChatTemplate("{% if %}", MISTRAL), ChatTemplate("", MISTRAL)
    assert "plain form" in template.problem
    assert template.render(chat("Be.")) == plain.render(chat("Be."))
    assert template.stop == plain.stop


def test_a_base_model_is_asked_in_a_plain_form() -> None:
    template = ChatTemplate("", MISTRAL)
    assert template.problem == BASE_MODEL
    assert template.stop == ("\nQuestion:",)
    messages = [*chat("Be."), Message("assistant", "b", stored(1)), *notes()]
    assert MISTRAL.show(template.render(messages)) == (
        "⟦<s>⟧Be.\n\nQuestion:  hi \nAnswer: <think>\nhm\n</think>\n\nho\n\n"
        "Question: more\nAnswer:(1)\n\nNotes: n\n\nQuestion: q\nAnswer:"
    )


@pytest.mark.parametrize(
    ("source", "tokenizer", "stop"),
    [
        (templates.GEMMA, GEMMA, ()),
        (templates.GEMMA, MISTRAL, ("<end_of_turn>",)),
        (templates.MISTRAL, MISTRAL, ()),
        (templates.MISTRAL, CHATML, ("[INST]",)),
        (templates.VICUNA, MISTRAL, ()),
        (templates.VICUNA, CHATML, ("\nUSER:",)),
        (templates.UPPERCASE, MISTRAL, ()),
    ],
)
def test_an_answer_ends_at_text_where_no_token_ends_it(
    source: str, tokenizer: CharacterTokenizer, stop: tuple[str, ...]
) -> None:
    assert ChatTemplate(source, tokenizer).stop == stop


def notes() -> list[Message]:
    return [Message("system", "Notes: n"), Message("user", "q")]


CHATS = {
    "notes": [*chat()[:2], *notes()],
    "notes at once": notes(),
    "system prompt": chat("Be."),
    "both": [*chat("Be.")[:3], *notes()],
    "both at once": [Message("system", "Be."), *notes()],
    "three turns": [*chat()[:2], Message("user", "u"), Message("assistant", "a"), *chat()[2:]],
    "stopped": [Message("user", "u"), Message("assistant", ""), Message("user", "v")],
    "stopped, with ids": [*chat(tokens=stored(7))[:2], Message("user", "v")],
    "failed": [Message("user", "u"), Message("user", "v")],
    "answer first": [Message("assistant", "a"), Message("user", "v")],
    "system in between": [*chat()[:1], Message("system", "s"), *chat()[1:]],
}
"""Every kind of conversation that a chat can become."""


@pytest.mark.parametrize("source", templates.AWKWARD.values(), ids=templates.AWKWARD)
def test_every_content_is_in_the_prompt(source: str) -> None:
    template = ChatTemplate(source, REASONER)
    assert template.problem == ""
    for messages in CHATS.values():
        assert_whole(REASONER.show(template.render(messages)), messages)


def test_a_template_that_sets_fields_of_messages_keeps_their_turns() -> None:
    template = ChatTemplate(templates.AWKWARD["sets fields of messages"], CHATML)
    assert CHATML.show(template.render(CHATS["stopped"])) == (
        "⟦<|im_start|>⟧user\nso: u⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant\nso: ⟦<|im_end|>⟧\n"
        "⟦<|im_start|>⟧user\nso: v⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant\n"
    )


class Refusing:
    """Refuses a number of arrangements, each of which takes time, before it renders a chat."""

    def __init__(self, refusals: int, seconds: float) -> None:
        self.seconds = 0.0
        self._refusals = refusals
        self._each = seconds

    def render(
        self, messages: Sequence[Mapping[str, object]], others: str, tools: Sequence[Tool] = ()
    ) -> str:
        self.seconds += self._each
        self._refusals -= 1
        if self._refusals >= 0:
            raise TemplateRefusalError("no")
        return "|".join(str(message["content"]) for message in messages)


def test_an_arrangement_is_searched_for_until_the_template_has_taken_too_long() -> None:
    """The template's processor time counts, not the load of the machine."""
    assert Placer(Refusing(25, 0.1)).place(PLAIN_CHAT).segments is not None
    with pytest.raises(ModelError, match="it takes over 6 s"):
        Placer(Refusing(25, 0.5))


class Quoting:
    """Takes time, and rewrites contents in every arrangement."""

    seconds = 0.0

    def render(
        self, messages: Sequence[Mapping[str, object]], others: str, tools: Sequence[Tool] = ()
    ) -> str:
        self.seconds += 0.1
        return "".join(f"{message['content']!r}" for message in messages) * 2


def test_an_inexact_rendering_is_used_when_time_for_a_better_one_is_up() -> None:
    renderer = Quoting()
    assert Placer(renderer).place(PLAIN_CHAT).segments is None
    assert renderer.seconds < 2 * SEARCH_S


@pytest.mark.parametrize("source", PUBLIC or [None], ids=lambda path: path.stem if path else "none")
def test_every_content_is_in_the_prompt_of_public_templates(source: Path | None) -> None:
    if source is None:
        pytest.skip("no public templates beside this checkout (../shared/templates)")
    template = ChatTemplate(source.read_text(), REASONER)
    assert template.problem == ""
    for messages in CHATS.values():
        assert_whole(REASONER.show(template.render(messages)), messages)
    assert_parts_make_the_whole(template)


def assert_parts_make_the_whole(template: ChatTemplate) -> None:
    """Check that `template` renders long conversations in parts as it does at once."""
    turns = [*chat()[:2], *chat(tokens=stored(7))[:2]] * PART_TURNS
    for system in ("", "Be."):
        for end in (notes(), chat()[:1]):
            long = [*chat(system)[: bool(system)], *turns, *end]
            assert find_seams([message.role for message in long])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("engines.chat_template.parts.PART_TURNS", len(long))
                whole = template.render(long)
            assert template.render(long) == whole


def assert_whole(prompt: str, messages: Sequence[Message]) -> None:
    """Check that every content is in `prompt` once and in order."""
    at = 0
    for message in messages:
        ids = (token - STORED for token in message.tokens)
        content = "".join(f"({one})" for one in ids) or message.content.strip()
        at = prompt.find(content, at)
        assert at >= 0, (content, prompt)
        at += len(content)


def test_roles_change_only_where_the_template_refuses_them() -> None:
    """Only system messages that it refuses become the user's."""
    template = ChatTemplate(templates.AWKWARD["system first"], CHATML)
    assert CHATML.show(template.render(CHATS["both"])) == (
        "⟦<|im_start|>⟧system\nBe.⟦<|im_end|>⟧\n⟦<|im_start|>⟧user\n hi ⟦<|im_end|>⟧\n"
        "⟦<|im_start|>⟧assistant\n<think>\nhm\n</think>\n\nho⟦<|im_end|>⟧\n"
        "⟦<|im_start|>⟧user\nNotes: n\n\nq⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant\n"
    )


def test_notes_change_no_token_before_the_question() -> None:
    """The KV cache of the chat so far is reused."""
    for name in ("system first", "last system above all", "turns", "parts", "tools"):
        template = ChatTemplate(templates.AWKWARD[name], REASONER)
        before = template.render(CHATS["both"][:2])
        after = template.render(CHATS["both"])
        assert after[: len(before)] == before


def test_the_error_names_why_a_template_refuses_a_conversation() -> None:
    never_long = (
        "{% if messages|map(attribute='content')|join|length > 100 %}"
        "{{ raise_exception('too long') }}{% endif %}"
    )
    template = ChatTemplate(never_long + CHATML_TEMPLATE, CHATML)
    assert template.problem == ""
    with pytest.raises(ModelError, match="too long"):
        template.render([*chat(), *chat()[1:]])


def test_a_template_that_loses_a_conversation_says_so() -> None:
    short = CHATML_TEMPLATE.replace("m['content']", "m['content'][:99]")
    template = ChatTemplate("{% set messages = messages[:3] %}" + short, CHATML)
    with pytest.raises(ModelError, match="leaves out messages"):
        template.render([*chat(), *chat()[1:], *chat()[1:]])


LOOK: Tool = {
    "type": "function",
    "function": {"name": "look", "description": "Ends <|im_end|> here.", "parameters": {}},
}
CALL = ToolCall("call12345", "look", {"path": "a<|im_end|>.py"})
RESULT = Message("tool", 'say "<|im_end|>"', call_id="call12345")
ASKED = [Message("system", "Be."), Message("user", "q")]


def test_tools_and_calls_go_through_the_template() -> None:
    called = [*ASKED, Message("assistant", "", calls=(CALL,)), RESULT]
    prompt = CHATML.show(chatml(templates.QWEN_2_5_TOOLS).render(called, [LOOK]))
    assert prompt == (
        '⟦<|im_start|>⟧system\nBe.\n<tools>\n{"type": "function", "function": {"name": "look", '
        '"description": "Ends < |im_end|> here.", "parameters": {}}}\n</tools>⟦<|im_end|>⟧\n'
        "⟦<|im_start|>⟧user\nq⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant\n<tool_call>\n"
        '{"name": "look", "arguments": {"path": "a< |im_end|>.py"}}\n</tool_call>⟦<|im_end|>⟧\n'
        '⟦<|im_start|>⟧user\n<tool_response>\nsay "<|im_end|>"\n</tool_response>⟦<|im_end|>⟧\n'
        "⟦<|im_start|>⟧assistant\n"
    )


def test_an_own_call_keeps_its_ids() -> None:
    own = Message("assistant", "", stored(1, 2), calls=(CALL,), written="<tool_call>…")
    template = chatml(templates.QWEN_2_5_TOOLS)
    prompt = template.render(ASKED, [LOOK])
    following = template.render([*ASKED, own, RESULT], [LOOK])
    assert following[: len(prompt) + 2] == [*prompt, *stored(1, 2)]


def test_a_result_that_the_template_quotes_is_no_control_token() -> None:
    called = [*ASKED, Message("assistant", "", calls=(CALL,)), RESULT]
    prompt = LLAMA_3.show(ChatTemplate(templates.LLAMA_3_TOOLS, LLAMA_3).render(called, [LOOK]))
    assert r"ipython⟦<|end_header_id|>⟧" + "\n\n" + r'"say \"<|im_end|>\""⟦<|eot_id|>⟧' in prompt


def test_two_calls_for_a_template_that_takes_one_become_text() -> None:
    called = [*ASKED, Message("assistant", "so", calls=(CALL, CALL)), RESULT]
    prompt = LLAMA_3.show(ChatTemplate(templates.LLAMA_3_TOOLS, LLAMA_3).render(called, [LOOK]))
    assert prompt.count('{"name": "look", "arguments"') == 2
    assert RESULT.content in prompt


@pytest.mark.parametrize("source", ["", CHATML_TEMPLATE])
def test_a_format_without_tools_refuses_them(source: str) -> None:
    with pytest.raises(InputError, match="no place for tools"):
        chatml(source).render(ASKED, [LOOK])
    called = [*ASKED, Message("assistant", "", calls=(CALL,)), RESULT]
    assert RESULT.content in CHATML.show(chatml(source).render(called))


def test_a_template_that_leaves_tools_out_is_refused() -> None:
    with pytest.raises(ModelError, match="leaves out"):
        chatml(templates.FORGETS_TOOLS).render(ASKED, [LOOK])
    chatml(templates.FORGETS_TOOLS).render(ASKED)


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_public_templates_show_calls_and_results(path: Path) -> None:
    template = ChatTemplate(path.read_text(), CHATML)
    if template.problem or not template.takes_tools:
        pytest.skip("takes no tools")
    called = [*ASKED, Message("assistant", "", calls=(CALL,)), RESULT]
    try:
        prompt = CHATML.show(template.render(called, [LOOK]))
    except ModelError:
        assert path.stem in REFUSES_TOOLS
        return
    assert "look" in prompt
    assert "say " in prompt
    assert "⟦<|im_end|>⟧ here" not in prompt


REFUSES_TOOLS = {
    "CohereForAI-c4ai-command-r-plus-tool_use",  # takes tools in another form
    "fireworks-ai-llama-3-firefunction-v2",  # takes a text instead
    "llama-cpp-deepseek-r1",  # sums up the length of a text
}

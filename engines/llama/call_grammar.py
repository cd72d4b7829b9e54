"""Calls of tools by grammar: from the first token on, or from where the model begins to call.

A model that decides by itself whether it calls writes freely first. Its call is followed through
the grammar from the opening on, and restricted once it can be nothing else. That depends on the
answer so far alone, so drafts change nothing, as with every grammar (`engines.llama.grammar`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence

from datastores.errors import InputError
from engines.chat_template.prompt_builder import Tool
from engines.chat_template.reasoning import marked_piece, prompt_opening, split_reasoning
from engines.chat_template.tool_calls import FENCE, MARKS, OPENINGS, CallForm, names_of
from engines.llama.grammar import Grammar, Rules
from engines.sampler import Draw
from engines.target import Floats, Vocabulary

BARE_BEGINNINGS = ("{", "`")
"""With what calls without marks begin."""


def call_grammar(
    form: CallForm, tools: Sequence[Tool], strict: Collection[str] = (), *, many: bool = True
) -> str:
    """The grammar, in GBNF, of one call of `tools` in a model's own form, or of `many` in a row.

    Arguments obey the tool's schema. Where the grammar would not obey all of that, a tool that is
    not named in `strict` may get any object.

    Raises:
        InputError: the schema of a strict tool is not supported.
    """
    rules = Rules()
    return rules.grammar(_in_form(form, _arguments(rules, tools, strict), many))


def free_call_grammar(
    form: CallForm, tools: Sequence[Tool], strict: Collection[str] = (), *, many: bool = True
) -> str:
    """The same, also for calls as JSON alone or in a block of code, as models write them on their
    own whatever their form is.

    Raises:
        InputError: the schema of a strict tool is not supported.
    """
    rules = Rules()
    arguments = _arguments(rules, tools, strict)
    keys = f"({_literal(json.dumps('arguments'))} | {_literal(json.dumps('parameters'))})"
    name = _literal(json.dumps("name"))
    body = " | ".join(
        f'{name} space ":" space {_literal(json.dumps(tool))} space "," space'
        f' {keys} space ":" space {rule}'
        for tool, rule in arguments.items()
    )
    body = rules.define("call-body", f"space ({body}) space")
    call = rules.define("json-call", f'"{{" {body} "}}" | "{{{{" {body} "}}}}"')
    calls = f"{call} ([;,]? space {call})*" if many else call
    block = f'{_literal(FENCE)} "json"? space {calls} space {_literal(FENCE)}'
    return rules.grammar(f"[ \\t\\n]* ({_in_form(form, arguments, many)} | {calls} | {block})")


def _arguments(rules: Rules, tools: Sequence[Tool], strict: Collection[str]) -> dict[str, str]:
    """The rule of each tool's arguments."""
    found = {}
    for index, tool in enumerate(tools):
        function, rule = tool["function"], f"tool-{index}"
        name, schema = function["name"], function["parameters"]
        try:
            if schema.get("type", "object") != "object":
                raise InputError("the schema of arguments must be of an object")
            found[name] = rules.add(schema, rule)
        except InputError as error:
            if name in strict:
                raise InputError(f"{name} cannot be strict: {error}") from error
            found[name] = rules.add({"type": "object"}, f"{rule}-any")
    return found


def _in_form(form: CallForm, arguments: dict[str, str], many: bool) -> str:
    """Calls in a model's own form, as a part of a rule."""
    call = " | ".join(f"{_literal(tool + form.middle)} {rule}" for tool, rule in arguments.items())
    more = f" ({_literal(form.between)} ({call}))*" if many else ""
    return f"{_literal(form.before)} ({call}){more} {_literal(form.after)}"


def _literal(text: str) -> str:
    """`text`, in ASCII, as GBNF writes it; empty for nothing."""
    return json.dumps(text) if text else ""


class FreeCalls:
    """Lets a model write freely until it calls a tool, and restricts the call."""

    def __init__(
        self, grammar: Grammar, vocabulary: Vocabulary, form: CallForm, tools: Sequence[Tool]
    ) -> None:
        """`grammar` is that of `free_call_grammar` for the same form and tools."""
        self._grammar = grammar
        self._vocabulary = vocabulary
        self._piece = marked_piece(vocabulary, MARKS)
        self._mark = next((mark for mark in OPENINGS if form.before.startswith(mark)), "")
        names = "|".join(map(re.escape, names_of(tools)))
        self._named = re.compile(rf'"name"\s*:\s*"(?:{names})"')
        self._begin("")

    def _begin(self, opening: str) -> None:
        """Go to the beginning of an answer to a prompt that ends with `opening`, a mark of
        reasoning or nothing."""
        self._tokens: list[int] = []
        self._text = opening  # before what is followed
        self._followed = ""  # what may become a call, or is one
        self._is_call = False

    def constrain(self, draw: Draw) -> Draw:
        """`draw`, but within a call among the tokens that the grammar allows."""

        def constrained(row: Floats, offset: int, context: Sequence[int]) -> int:
            self._go_to(context, len(context) - offset)
            if self._is_call:
                return self._grammar.draw(draw, row, offset, context)
            return draw(row, offset, context)

        return constrained

    def _go_to(self, context: Sequence[int], start: int) -> None:
        """Go to the end of `context`, whose answer begins at `start`."""
        known = len(self._tokens)
        if not known or list(context[start : start + known]) != self._tokens:
            self._begin(prompt_opening(self._vocabulary, context[:start]))
        for token in context[start + len(self._tokens) :]:
            self._take(token, self._piece(token).decode("utf-8", "replace"))
            self._tokens.append(token)

    def _take(self, token: int, piece: str) -> None:
        """Go on by a token."""
        if not (self._followed and self._grammar.allows(token)):
            self._text, self._followed = self._text + self._followed, ""
            if not self._may_begin(piece):
                self._text += piece
                return
        self._grammar.accept(token)
        self._followed += piece
        marked = bool(self._mark) and self._mark in self._followed
        self._is_call = marked or bool(self._named.search(self._followed))

    def _may_begin(self, piece: str) -> bool:
        """Whether a call may begin with the token of `piece`; the grammar is then at its
        beginning. One without a mark is never preceded by text."""
        begun, mark = piece.strip(), self._mark
        marked = bool(mark) and (mark.startswith(begun) or begun.startswith(mark))
        if not begun or not (marked or begun.startswith(BARE_BEGINNINGS)):
            return False
        split = split_reasoning(self._text, growing=True)
        if split.thinking or (split.answer.strip() and not marked):
            return False
        self._grammar.reset()
        return True

"""Answers in the form of a JSON schema, by llama.cpp's grammars.

A grammar removes tokens from the target's distribution. What it allows depends on the answer so far
alone, and the walk through a draft draws every token of the answer exactly once and in order. So
drafts obey it by being verified: the answer is the same with and without them.

As in llama.cpp, a token is drawn first, and only if the grammar does not allow it again among those
that it does: checking one token is fast, a whole vocabulary is not.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib
from llama_cpp.llama_grammar import SchemaConverter

from datastores.errors import InputError
from engines.llama import native
from engines.llama.context import Weights, free_with
from engines.sampler import Draw
from engines.target import Floats

MAX_SCHEMA_BYTES = 1 << 15
MAX_DEPTH = 32
MAX_COUNT = 1000
"""Largest bound of a length in a schema: a grammar spells each of them out."""

ANNOTATIONS = frozenset(("title", "description", "default", "examples", "$schema", "$id", "$defs"))
"""Keywords that restrict nothing."""
COUNTS = frozenset(("minItems", "maxItems", "minLength", "maxLength"))
ALTERNATIVES = frozenset(("anyOf", "oneOf", "$ref", "const", "enum"))
KEYWORDS = (
    ANNOTATIONS
    | COUNTS
    | ALTERNATIVES
    | {"definitions", "type", "properties", "required", "additionalProperties", "items"}
)
"""Keywords that the grammar obeys."""
UNREADABLE = (
    *(ValueError, KeyError, TypeError, AttributeError, AssertionError, IndexError),
    RecursionError,
)
"""What llama-cpp-python's converter raises for a schema that it cannot convert."""

SPACE = r'| " " | "\n"{1,2} [ \t]{0,20}'
"""White space between the parts of a value, as llama.cpp's own converter allows it: models break
lines and indent, and this ends."""

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def json_grammar(schema: Mapping[str, Any]) -> str:
    """The grammar, in GBNF, of the JSON values that `schema` allows.

    Raises:
        InputError: it is not a schema, or has a keyword that the grammar would not obey.
    """
    rules = Rules()
    return rules.grammar(rules.add(schema, "answer"))


def _converter() -> Any:
    """llama-cpp-python's converter of schemas, which has no types."""
    return SchemaConverter(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)


class Rules:
    """The rules of some schemas. One that is referred to gets a rule of a name of its own: the
    converter's, the last part of the reference, may be that of another rule. `space` is the white
    space between the parts of a value."""

    def __init__(self) -> None:
        self._converter = _converter()
        self._converter._rules["space"] = SPACE
        self._converter._resolve_ref = self._refer
        self._named: dict[str, str] = {}

    def add(self, schema: Mapping[str, Any], rule: str) -> str:
        """Add the rules of `schema`, and return the name of the first.

        Raises:
            InputError: it is not a schema, or has a keyword that they would not obey.
        """
        if len(text := json.dumps(schema)) > MAX_SCHEMA_BYTES:
            raise InputError(f"the schema has more than {MAX_SCHEMA_BYTES // 1024} KiB: shorten it")
        for keyword in _disobeyed(schema, MAX_DEPTH):
            raise InputError(f"the schema has {keyword}, which is not supported")
        try:
            resolved = self._converter.resolve_refs(json.loads(text), rule)
            return str(self._converter.visit(resolved, rule))
        except UNREADABLE as error:
            problem = str(error)[:200] or "invalid"
            raise InputError(f"the schema cannot be used: {problem}") from error

    def define(self, rule: str, text: str) -> str:
        """Add `rule`, and return its name."""
        return str(self._converter._add_rule(rule, text))

    def grammar(self, root: str) -> str:
        """All rules, with `root` for the whole answer."""
        return f"root ::= {root}\n{self._converter.format_grammar()}"

    def _refer(self, ref: str) -> str:
        """The rule of what `ref` refers to."""
        if ref not in self._named:
            self._named[ref] = name = f"ref-{len(self._named)}"
            if (rule := self._converter.visit(self._converter._refs[ref], name)) != name:
                self._converter._add_rule(name, rule)
        return self._named[ref]


def _disobeyed(schema: object, depth: int) -> Iterator[str]:
    """What is in `schema` that the grammar would not obey."""
    if not isinstance(schema, dict):
        yield "a value that is no object where a schema is expected"
        return
    if not depth:
        yield f"more than {MAX_DEPTH} levels"
        return
    yield from (repr(key) for key in schema if key not in KEYWORDS)
    large = (key for key in COUNTS & schema.keys() if not _is_count(schema[key]))
    yield from (f"{key} other than a number up to {MAX_COUNT}" for key in large)
    chosen = ALTERNATIVES & schema.keys()
    if len(chosen) > 1 or (chosen and schema.keys() & {"properties", "items", *COUNTS}):
        yield f"{min(chosen)!r} beside other restrictions"
    inner = schema.get("additionalProperties", False)
    if not isinstance(inner, bool):
        yield from _disobeyed(inner, depth - 1)
    for key in ("properties", "$defs", "definitions"):
        named = schema.get(key, {})
        for one in named.values() if isinstance(named, dict) else [named]:
            yield from _disobeyed(one, depth - 1)
    for key in ("anyOf", "oneOf"):
        for one in schema.get(key, ()):
            yield from _disobeyed(one, depth - 1)
    if "items" in schema:
        yield from _disobeyed(schema["items"], depth - 1)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= MAX_COUNT


class Grammar:
    """A grammar over one model's vocabulary, at some place of an answer."""

    def __init__(self, weights: Weights, grammar: str) -> None:
        """`grammar` is GBNF with the rule `root`.

        Raises:
            InputError: it is invalid, or recurs on its left.
        """
        native.clear_errors()
        self._sampler = lib.llama_sampler_init_grammar(
            weights.vocabulary, grammar.encode(), b"root"
        )
        if not self._sampler:
            raise InputError(f"the schema cannot be used: {native.first_error() or 'no grammar'}")
        free_with(self, lib.llama_sampler_free, self._sampler, weights)
        self._stop = int(lib.llama_vocab_eot(weights.vocabulary))
        if self._stop < 0:
            self._stop = int(lib.llama_vocab_eos(weights.vocabulary))
        self._accepted: list[int] = []
        self._one = np.zeros(1, _CANDIDATE)
        self._all = np.zeros(weights.vocabulary_size, _CANDIDATE)

    def constrain(self, draw: Draw) -> Draw:
        """`draw` among the tokens that the grammar allows after the answer so far."""

        def constrained(row: Floats, offset: int, context: Sequence[int]) -> int:
            self._go_to(context[len(context) - offset :])
            return self.draw(draw, row, offset, context)

        return constrained

    def draw(self, draw: Draw, row: Floats, offset: int, context: Sequence[int]) -> int:
        """What `draw` draws among the tokens that are allowed here; the end where none is."""
        token = draw(row, offset, context)
        if self.allows(token):
            return token
        allowed = self._masked(row)
        return draw(allowed, offset, context) if np.isfinite(allowed.max()) else self._stop

    def _go_to(self, answer: Sequence[int]) -> None:
        """Go to the place after `answer`, all of whose tokens were allowed."""
        known = len(self._accepted)
        if list(answer[:known]) != self._accepted:
            self.reset()
            known = 0
        for token in answer[known:]:
            self.accept(token)

    def reset(self) -> None:
        """Go to the beginning."""
        lib.llama_sampler_reset(self._sampler)
        self._accepted = []

    def accept(self, token: int) -> None:
        """Go on by a token that is allowed here."""
        lib.llama_sampler_accept(self._sampler, token)
        self._accepted.append(token)

    def allows(self, token: int) -> bool:
        """Whether `token` is allowed here."""
        self._one["id"], self._one["logit"] = token, 0.0
        self._apply(self._one)
        return bool(np.isfinite(self._one["logit"][0]))

    def _masked(self, row: Floats) -> Floats:
        """A copy of `row` with -inf for tokens that are not allowed."""
        self._all["id"], self._all["logit"] = np.arange(len(row)), row
        self._apply(self._all)
        return np.ascontiguousarray(self._all["logit"])

    def _apply(self, candidates: np.ndarray[Any, np.dtype[np.void]]) -> None:
        array = lib.llama_token_data_array(
            ctypes.cast(candidates.ctypes.data, lib.llama_token_data_p), len(candidates), -1, False
        )
        lib.llama_sampler_apply(self._sampler, ctypes.byref(array))

"""A llama.cpp context as a `Target`: prefill, verify, commit, rewind.

Owns the record of what stands in the KV cache, and keeps the cache to it: cells behind the recorded
tokens are there only from a pass until its commit. Refuses to know how a pass is run
(`engines.llama.forward`), text, chats, files, and which drafts are worth verifying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, TypeVarTuple

from datastores.errors import ModelError
from datastores.tokens import common_prefix
from engines.draft_tree import DraftTree
from engines.llama.context import ContextLimits, LlamaContext
from engines.llama.forward import ForwardPass, PrefillChunkSize
from engines.llama.kv_sequences import KvSequences, ScratchSequence, lay_out
from engines.llama.threads import ThreadTuner
from engines.target import ForwardOutput, require_prompt_fits, require_tree_fits

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class LlamaTarget:
    """Implements `engines.target.Target`.

    Attributes:
        scratch: evaluates other texts between two answers and leaves the cached tokens in place;
            None where the model's memory holds a single text.
    """

    def __init__(
        self,
        context: LlamaContext,
        shape: ContextLimits,
        pace: PrefillChunkSize,
        governor: ThreadTuner,
        fingerprint: str,
    ) -> None:
        self.fingerprint = fingerprint
        self.vocabulary_size = context.weights.vocabulary_size
        self.width = context.weights.width
        self.context_length = shape.context_length
        self.max_rows = shape.max_rows
        self.chains_only = shape.chains_only
        self.padded_rows = shape.padded_rows
        self._tokens: list[int] = []
        self._settled = True
        self._verified: DraftTree | None = None
        self._carried: list[list[int]] = []
        self._last_row: ForwardOutput | None = None
        self._last_row_pass = 0
        self._passes = ForwardPass(context, shape, pace, governor)
        self._branches = KvSequences(context.memory, shape.max_rows, shape.chains_only)
        self.scratch = ScratchSequence(context, self._passes, self._free) if context.spare else None

    @property
    def tokens(self) -> Sequence[int]:
        """The token ids standing in the KV cache, in order. A live view: copy to keep."""
        return self._tokens

    @property
    def last_row(self) -> ForwardOutput:
        """See `Target.last_row`. A view: every pass of this context, a `scratch` one too, ends it.

        Raises:
            RuntimeError: no prefill was finished, or something was evaluated since.
        """
        if self._last_row is None or self._last_row_pass != self._passes.count:
            raise RuntimeError("last_row is valid only right after a finished prefill")
        return self._last_row

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """Make the cache hold exactly `tokens`; see `Target.prefill`.

        A long prompt passes without outputs, in chunks, but for its last token.

        Raises:
            ContextOverflowError: `tokens` is longer than the context.
            ModelError: llama.cpp refuses a chunk; the cache holds what was read before it.
        """
        require_prompt_fits(self, len(tokens))
        if self.scratch is not None:
            self.scratch.drop()
        # The last token is always evaluated, for `last_row`.
        self.rewind(min(common_prefix(self._tokens, tokens), len(tokens) - 1))
        while len(tokens) - len(self._tokens) > self._passes.ending:
            start = len(self._tokens)
            chunk = tokens[start : min(start + self._passes.chunk, len(tokens) - 1)]
            self._evaluate(self._passes.read, chunk, start)
            self._append(chunk)
            yield len(self._tokens)
        self._last_row = self._read_last(tokens[len(self._tokens) :])
        self._last_row_pass = self._passes.count
        yield len(self._tokens)

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """Evaluate every row of `tree` in one forward pass; see `Target.verify`.

        Raises:
            ContextOverflowError: the tree does not fit behind the cached tokens.
            ModelError: llama.cpp could not evaluate it; the cache is as it was before.
        """
        if not self._settled:
            self._settle()
        rows, start = len(tree.tokens), len(self._tokens)
        require_tree_fits(self, rows)
        carried = [] if rows == 1 or tree.is_chain() else lay_out(tree.parents)
        if not carried:
            view = self._evaluate(self._passes.chain, tree.tokens, start)
        elif self.chains_only:
            raise ValueError("this model verifies chains only")
        else:
            self._branches.grow(len(carried[0]), start)
            view = self._evaluate(self._passes.tree, tree, start, carried)
        self._verified, self._carried = tree, carried
        return view

    def commit(self, path: Sequence[int]) -> None:
        """Keep the verified rows that stand on `path` (root first), drop the rest."""
        tree, start = self._verified, len(self._tokens)
        if tree is None:
            raise RuntimeError("commit without a verified tree")
        self._verified = None
        if self._carried:
            self._branches.keep_path(start, path, self._carried)
        elif self._passes.width(len(tree.tokens)) > len(path):
            self._branches.keep_chain(start + len(path))
        self._tokens.extend([tree.tokens[row] for row in path])
        self._settled = True

    def rewind(self, length: int) -> None:
        """Cut the cache to its first `length` tokens; to none where its memory keeps no past."""
        self._last_row = None
        if length == len(self._tokens) and self._settled:
            return
        self._drop_after(length)

    def _free(self) -> int:
        """Cells left beside the recorded tokens."""
        return self.context_length - len(self._tokens)

    def _read_last(self, tokens: Sequence[int]) -> ForwardOutput:
        """Append the last few `tokens`, with outputs, and return the last one's row."""
        rows = self._evaluate(self._passes.chain, tokens, len(self._tokens))
        self._append(tokens)
        return ForwardOutput(rows.logits[-1:], rows.hidden[-1:])

    def _evaluate(self, run: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """One forward pass. On failure the cache holds what it held before."""
        self._settled = False
        try:
            return run(*arguments)
        except ModelError:
            self._drop_after(len(self._tokens))
            raise

    def _append(self, tokens: Sequence[int]) -> None:
        """Record `tokens`, a chain that was just evaluated."""
        if self._passes.width(len(tokens)) > len(tokens):
            self._branches.keep_chain(len(self._tokens) + len(tokens))
        self._tokens.extend(tokens)
        self._settled = True

    def _drop_after(self, length: int) -> None:
        """Empty the cache from position `length` on, or wholly where its memory keeps no past."""
        if not self._branches.cut(length):
            length = 0
            self._branches.cut(0)
        del self._tokens[length:]
        self._verified = None
        self._settled = True

    def _settle(self) -> None:
        """Drop what was evaluated and never made part of `tokens`: an interrupt came between."""
        length = len(self._tokens)
        self._drop_after(length)
        if len(self._tokens) < length:
            raise ModelError("this model cannot step back: the chat has to be read again")

"""The size of a recurrent state, from a file's header, and the number of past states to keep."""

from __future__ import annotations

from engines.llama.gguf import Metadata

STATE_NUMBER_BYTES = 4
"""llama.cpp computes states in float32."""
MAX_SNAPSHOTS = 8
"""Maximum number of past states. Every pass writes them: with 0, 4, 8 and 16 of them a pass of one
row took 21.3, 21.8, 22.2 and 23.0 ms, of 8 rows 41, 46, 50 and 51 (a Qwen3.5 of 162 M weights, f16,
states of 6.4 MB, two threads). A checkpoint took 2 ms and re-evaluating one row 30, so 8 pay over 4
if an eighth of the drafts in between is rejected."""
SNAPSHOT_BYTES, SNAPSHOT_SHARE = 256 * 2**20, 1 / 16
"""Maximum memory for them: this many bytes, or for a large model this share of its weights."""


def state_bytes(metadata: Metadata) -> int:
    """Bytes of one state of a recurrent or hybrid model; 0 for other models.

    llama.cpp's `n_embd_r` and `n_embd_s` (llama-hparams.cpp) times the number of recurrent layers.
    """
    width = metadata.number("embedding_length")
    kernel = max(metadata.number("ssm.conv_kernel") - 1, 0)
    heads, length = metadata.number("attention.head_count"), metadata.number("kda.head_dim")
    rwkv = metadata.number("wkv.head_size")
    if rwkv:
        numbers = width * (metadata.number("token_shift_count", 2) + rwkv)
    elif metadata.number("shortconv.l_cache"):
        numbers = width * (metadata.number("shortconv.l_cache") - 1)
    elif length:
        numbers = heads * length * (3 * (kernel or 3) + length)
    else:
        inner, state = metadata.number("ssm.inner_size"), metadata.number("ssm.state_size")
        numbers = kernel * (inner + 2 * metadata.number("ssm.group_count") * state) + state * inner
    return STATE_NUMBER_BYTES * numbers * _recurrent_layers(metadata)


def _recurrent_layers(metadata: Metadata) -> int:
    layers = metadata.number("block_count") - metadata.number("nextn_predict_layers")
    marked = metadata.values.get(f"{metadata.architecture}.attention.recurrent_layers")
    if isinstance(marked, list):
        return sum(marked[:layers])
    attention = metadata.values.get(f"{metadata.architecture}.attention.head_count_kv")
    if isinstance(attention, list):
        forward = metadata.values.get(f"{metadata.architecture}.feed_forward_length")
        # In some models a layer has only attention, a state or a feed-forward part.
        alone = forward if isinstance(forward, list) and 0 in forward else [0] * layers
        return sum(not (heads or other) for heads, other in zip(attention, alone, strict=False))
    interval = metadata.number("full_attention_interval")
    return layers - (layers // interval if interval else 0)


def snapshot_count(state: int, weights: int) -> int:
    """Past states to keep, by the bytes of a state and of the weights."""
    budget = max(SNAPSHOT_BYTES, int(weights * SNAPSHOT_SHARE))
    return min(MAX_SNAPSHOTS, budget // state) if state else MAX_SNAPSHOTS // 2

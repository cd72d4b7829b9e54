"""Small GGUF files with whatever metadata a test needs, written by the reference writer."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

WIDTH, INNER, LAYERS, HEADS, CONTEXT = 64, 96, 3, 4, 512


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    kind: str = "",
    weights: int = 2,
    tokenizer: str = "gpt2",
    tokens: int = 300,
    template: str = "{{ messages }}",
    **numbers: int | bool | list[int],
) -> Path:
    """A header with `weights` matrices of WIDTH x WIDTH, and `numbers` behind the architecture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    if kind:
        writer.add_type(kind)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_vocab_size(tokens)
    for name, value in numbers.items():
        key = f"{architecture}.{name.replace('__', '.')}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_uint32(key, value)
    if tokenizer:
        writer.add_tokenizer_model(tokenizer)
        writer.add_token_list([f"token {number}" for number in range(tokens)])
        writer.add_token_scores([0.0] * tokens)
        writer.add_token_types([1] * tokens)
        if template:
            writer.add_chat_template(template)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    for number in range(weights):
        writer.add_tensor(f"blk.{number}.weight", np.zeros((WIDTH, WIDTH), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def split_gguf(source: Path, target: Path, tensors: int) -> list[Path]:
    """`source` in parts of so many tensors each; as large models often come, the first has none."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama", split_max_tensors=tensors, small_first_shard=True)
    for name, value in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            of = value.types[-1] if value.types[0] is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, value.contents(), value.types[0], sub_type=of)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(target.parent.glob(f"{target.stem}-*.gguf"))

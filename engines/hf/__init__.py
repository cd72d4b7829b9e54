"""The second engine: safetensors folders and GGUF files through transformers and torch."""

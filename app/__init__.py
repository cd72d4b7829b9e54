"""The application: command line, interface, conversations, models, importing, indexing, benchmarks.

`runtime` runs it, `engine` is a loaded model with its stores.
"""

import os

import engines.llama  # noqa: F401 (before anything that brings C++ functions)

# By default NumPy's matrix products use every core, and its threads spin next to the model's:
# recording states during an answer halved its speed (0.58 of plain decoding, 1.16 with one
# thread). NumPy reads this when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

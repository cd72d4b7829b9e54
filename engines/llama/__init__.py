"""The default engine: GGUF models through llama.cpp's low-level API.

Importing this package does not import llama.cpp; `engines.llama.model.load` loads a model.
"""

import os

from engines.llama.library import share_cxx_library

# By default, threads that wait at a barrier spin for milliseconds before they sleep, which on a
# busy machine starves the thread they wait for: on four cores with eight other busy processes, a
# forward pass of 0.3 ms took 150 to 1200 ms, and 9 to 26 ms with this setting. On an idle machine
# it costs nothing. OpenMP reads it when llama.cpp is loaded, which every import does through this
# package.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

share_cxx_library()

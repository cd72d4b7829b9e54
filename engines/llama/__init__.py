"""The default engine: GGUF models through llama.cpp's low-level API.

Importing this package does not import llama.cpp; `engines.llama.model.load` loads a model.
"""

import os

from engines.llama.library import share_cxx_library

# By default, threads that wait at a barrier spin for milliseconds before they sleep, which on a
# busy machine starves the very thread they wait for. On four cores with eight other busy processes
# a forward pass of 0.3 ms took 150 to 1200 ms by default and 9 to 26 ms with this setting; on an
# idle machine it costs nothing. OpenMP reads it once, when llama.cpp is loaded, so it is set here:
# every import of llama.cpp in this program goes through this package.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

share_cxx_library()

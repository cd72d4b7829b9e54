"""What a person touches: the command line, the interface, one conversation turn, benchmarks."""

import os

# NumPy's matrix products take every core unless told otherwise, and its threads go on spinning
# beside the model's: recording states while an answer was written halved its speed (0.58 of plain
# decoding against 1.16 with one thread). NumPy reads this when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

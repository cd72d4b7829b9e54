"""Online distillation: the draft model learns from the target's answers (Liu et al. 2023).

`round` is the entry point: from a replay buffer to a published version. `holdout` divides the
answers, `trainer` learns from some, `gate` measures with the others, `versions` keeps what passed.
`model` is the draft model in torch, `weights` its GGUF file; a new loss is a function in
`losses.LOSSES`. All modules but `versions` and `holdout` import torch, and are themselves imported
only by the training process, the benchmark and the recipe of the embedded pair.
"""

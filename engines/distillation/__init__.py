"""Online distillation: the draft model learns from the target's answers (Liu et al. 2023).

`round` is the entry: from a replay buffer to a published version. `holdout` divides the answers,
`trainer` learns from some, `gate` measures with the others, `versions` keeps what passed. `model`
is the draft model in torch, `weights` its GGUF file, `losses` what it minimises: a new loss is a
function in `losses.LOSSES`. torch is imported by these modules alone (but not by `versions` and
`holdout`), which nobody imports but the process that learns, the benchmark and the recipe of the
embedded pair.
"""

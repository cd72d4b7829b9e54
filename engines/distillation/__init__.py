"""Online distillation: the draft model learns from the target's answers (Liu et al. 2023).

`model` is the student in torch, `weights` its GGUF file, `losses` what it minimises. A new loss is
a function in `losses.LOSSES`. torch is imported by these modules alone, which nobody imports but
the process that learns, the benchmark and the recipe of the embedded pair.
"""

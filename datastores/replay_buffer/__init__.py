"""The replay buffer: answers with the target's probabilities, for draft models to learn from.

`record` defines and checks what is stored of one answer, `states` the hidden states of its tokens,
for the draft head. `store` is the file with all its SQL, `writer` the thread that writes while
answers are generated.
"""

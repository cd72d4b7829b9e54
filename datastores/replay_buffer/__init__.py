"""The replay buffer: answers with the target's probabilities, for draft models to learn from.

`record` is what one answer leaves and how it is checked, `states` the hidden states of its tokens,
for the draft head. `store` is the file with all SQL on it, `writer` the thread that writes while
answers are generated. Something else that is kept of an answer is a field of the record; another
store that training reads gets a folder of its own.
"""

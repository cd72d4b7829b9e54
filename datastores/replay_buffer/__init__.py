"""The replay buffer: answers with the target's probabilities, for the draft model to learn from.

`record` is what one answer leaves and how it is checked, `store` the file with all SQL on it,
`writer` the thread that writes while answers are generated. Something else that is kept of an
answer is a field of the record; another store that training reads gets a folder of its own.
"""

"""The running program without a screen: the model's thread, idle work, learning and deletion; and
the socket through which commands use a model that is open in another process.

New idle work is a generator like those in `idle_encoding`, run in small steps by a line in
`open_model`; work in a process of its own is begun as `learning` begins its rounds.
"""

"""Staging: a user's function is run once on Symbols, and what it does is written down.

In come a function and example arguments; out goes a `Graph` with the tensors that it reads and writes.
Called by `calls/` and by traced programs.
"""

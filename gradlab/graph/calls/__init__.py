"""Calls of compiled functions: from the decorator to the arrays that an executable runs on.

In come a user's function and its arguments; out go its results, with their node in the autograd graph. `gl.compile`, `jit` and
`session` call it.
"""

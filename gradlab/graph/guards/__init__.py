"""Guards: what user code read while it was traced, as conditions under which the program may stand for the function.

In come a trace under way and the places that it reads; out goes one function that tests all conditions. Called by `staging/` and `calls/`.
"""

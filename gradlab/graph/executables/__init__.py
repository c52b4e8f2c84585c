"""Executables: a straight line of calls on arrays, made ready to run again and again.

In comes a `Line` (`ir/linear.py`); out go objects whose `run(arrays, outs)` computes it: by NumPy, as machine code, or on a GPU.
Called by `calls/runner.py`.
"""

"""Calls with one wrong argument: values that are wrong nearly everywhere, what is called with them, and what may come of it.

    PYTHONPATH=tests python -m kinds.bad                  # every subject, every value, in child processes with limits; a table
    PYTHONPATH=tests python -m kinds.bad --only split     # those whose name has "split" in it, each fault
"""

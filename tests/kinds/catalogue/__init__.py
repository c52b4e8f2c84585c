"""Arguments of sample calls, one file per family. `kinds.calls` makes the calls.

A key is a name alone, for the function and the method (and the one in place, and the operator) of that name wherever it is public, or a
name with its room ("F.pad", "Tensor.expand"), which is for that one alone and comes first.
"""

"""Mutants of the code: small faults planted one by one, to see whether the tests of the same room find them.

    python -m tests.mutation --count 20 --seconds 600 --seed 3
    python -m tests.mutation --room rows --file gradlab/ops/scan.py
"""

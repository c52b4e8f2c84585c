"""Measures how exact each operation is, beside PyTorch (`python -m tests.numerics`)."""

"""Tensors, and what of the library writes them: cases of `test_library_writes.py`."""

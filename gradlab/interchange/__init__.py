"""What other libraries' functions come to on tensors: NumPy's ufuncs and functions, and einops'."""

"""Matrix products by cuBLASLt, through a binding of our own that captures into CUDA graphs and costs the host little.

`binding.py` finds the library and declares what we use of it; `operands.py` says how a row's operands lie in memory in cuBLAS's terms;
`plan.py` makes descriptors and chooses algorithms, once for each problem; `rows.py` runs the rows; `settings.py` holds what users choose;
`standin.py` and `arithmetic.py` are the library of the emulated GPU, behind the same entry points. Used by the launch rules only.
"""

"""Fourier transforms by cuFFT, through a binding of our own that captures into CUDA graphs.

`binding.py` finds the library and declares what we use of it; `plans.py` makes and keeps plans; `rows.py` says in which order a row's
dimensions are transformed; `standin.py` is the library of the emulated GPU, behind the same entry points. Used by the launch rules only.
"""

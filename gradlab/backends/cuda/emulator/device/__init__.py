"""The emulated GPU's device side: arrays, memory pools, streams that run late, captures. Used by `backends/cuda/emulated.py` alone."""

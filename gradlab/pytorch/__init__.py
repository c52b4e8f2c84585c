"""gradlab under PyTorch's name: what `import torch` and `import torch.x.y` find once `gradlab.as_torch` has been imported.

`installing.py` switches it on, `finder.py` is what Python's import system then asks, `table.py` what becomes of each of PyTorch's modules,
and `answering.py` how they answer, `torch` itself among them.
"""

"""`import gradlab.as_torch`, as the first line of a script or of a `conftest.py`: from here on `import torch` gives gradlab.

    import gradlab.as_torch
    import torch, torch.nn.functional as F

It lasts for the process. Without this import nothing of it is active. Raises ImportError where PyTorch itself has been imported already.
"""

from __future__ import annotations

from gradlab.pytorch.installing import install

install()

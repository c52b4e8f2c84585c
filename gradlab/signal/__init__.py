"""Signal processing by PyTorch's names: `gradlab.signal.windows`. Fourier transforms are in `gradlab.fft`."""

from __future__ import annotations

from gradlab.signal import windows as windows

__all__ = ["windows"]

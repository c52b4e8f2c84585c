"""Samples of the rows without inputs."""

from __future__ import annotations

import numpy as np

from gradlab.device import CPU

from samples.base import sample

F32 = np.dtype("float32")
SAMPLES = {
    "full": [
        sample(shape=(2, 3), value=1.5, dtype=F32, device=CPU, reference=lambda shape, value, dtype, device: np.full(shape, value, dtype))
    ],
    "arange": [
        sample(
            start=1,
            step=2,
            size=5,
            dtype=F32,
            device=CPU,
            reference=lambda start, step, size, dtype, device: start + step * np.arange(size, dtype=dtype),
        )
    ],
}

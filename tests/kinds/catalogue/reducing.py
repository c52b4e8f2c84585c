"""Reductions, scans, order and statistics."""

from __future__ import annotations

import numpy as np

from kinds.catalogue.giving import CUBE, MASK, B, I, J, P, V, X, Y, given, integers, words

SEVERAL = words("sum nansum mean nanmean logsumexp amax amin std var")
ONE = words("argmax argmin prod max min median nanmedian all any count_nonzero")
SPECTRA = np.fft.rfft(np.ones((6, 4)) * [0.5, -1.0, 2.0, 1.0]).T.copy()
SORTED = np.array([-0.7, -0.1, 0.2, 0.9])

CALLS = {
    **{f"masked.{name}": [given(X, mask=MASK), given(X, 1, mask=MASK)]
       for name in words("sum prod amax amin argmax argmin mean logsumexp var std")},
    **{f"masked.{name}": [given(X, 1, mask=MASK)] for name in words("cumsum cumprod median softmax log_softmax softmin")},
    "masked.norm": [given(X, 2.0, 1, mask=MASK)], "masked.normalize": [given(X, 2.0, 1, mask=MASK)],
    "masked.logaddexp": [given(X, Y, input_mask=MASK)],
    **{f"fft.{name}": [given(X), given(X, 5, 0, "ortho")] for name in words("fft ifft rfft irfft hfft ihfft")},
    **{f"fft.{name}{n}": [given(X), given(X, (4, 5), norm="forward")]
       for name in words("fft ifft rfft irfft hfft ihfft") for n in ("2", "n")},
    "stft": [given(V, 4, 1, return_complex=True), given(X, 4, 2, center=False, return_complex=True)],
    "istft": [given(SPECTRA, 4, 1)], "fft.fftshift": [given(X)], "fft.ifftshift": [given(X, 1)], "fft.fftfreq": [given(5, 0.5)],
    "fft.rfftfreq": [given(5, 0.5)],
    "segment_reduce": [given(X, "sum", lengths=np.array([1, 2])), given(X, "max", offsets=np.array([0, 2, 3]))],
    "histogramdd": [given(X, [2, 2, 2, 2])],
    **{name: [given(X), given(X, 1), given(CUBE, (0, 2), keepdim=True)] for name in SEVERAL},
    **{name: [given(X), given(X, 1)] for name in ONE},
    "logsumexp": [given(X, 1), given(CUBE, (0, 2), keepdim=True)],
    "max": [given(X), given(X, 1), given(X, Y)], "min": [given(X), given(X, 1), given(X, Y)],
    "all": [given(B), given(B, 1)], "any": [given(B), given(B, 1), given(X, 0)],
    "std_mean": [given(X), given(X, 1)], "var_mean": [given(X), given(X, 1)], "aminmax": [given(X), given(X, dim=1)],
    "norm": [given(X), given(X, 1, 1), given(X, 2.0, 0, keepdim=True)], "cumsum": [given(X, 0)], "cumprod": [given(P, 1)],
    "logcumsumexp": [given(X, 1)], "cummax": [given(X, 1)], "cummin": [given(X, 0)], "diff": [given(X), given(X, dim=0, append=Y[:1])],
    "trapezoid": [given(X), given(X, Y)], "trapz": [given(X)], "cumulative_trapezoid": [given(X)],
    "sort": [given(X), given(X, 0, descending=True)], "argsort": [given(X), given(X, 0)], "msort": [given(X)],
    "topk": [given(X, 2), given(X, 2, 0)], "kthvalue": [given(X, 2)], "mode": [given(I)],
    "quantile": [given(X, 0.4), given(X, V * 0 + 0.3, 1)], "nanquantile": [given(X, 0.4, 1)],
    "unique": [given(I), given(X, return_inverse=True, return_counts=True)],
    "unique_consecutive": [given(np.array([1, 1, 2, 2, 3, 1])), given(np.array([0.5, 0.5, 2.0]), return_inverse=True)],
    "bincount": [given(np.array([1, 2, 2, 4])), given(np.array([1, 2, 2]), np.array([0.5, 0.25, 2.0]))],
    "bucketize": [given(X, SORTED)], "searchsorted": [given(SORTED, X)],
    "cov": [given(X), given(X, fweights=np.array([1, 2, 1, 3]))], "corrcoef": [given(X)],
    "softmax": [given(X, 1)], "log_softmax": [given(X, 0)], "combinations": [given(V)], "renorm": [given(X, 2, 0, 0.5)],
    "nonzero_static": [given(B, size=14)], "frexp": [given(X)], "histogram": [given(X, 3)],
    "gradient": [given(X), given(X, dim=1, spacing=0.5)],
    "pdist": [given(X)],
    "nonzero": [given(B), given(X * B, as_tuple=True)], "argwhere": [given(B)], "trace": [given(X)],
    "Tensor.sum_to_size": [given(X, (1, 4)), given(X, 3, 1)], "unravel_index": [given(np.array([1, 5, 11]), (3, 4))],
    "vander": [given(V), given(V, 3)], "is_nonzero": [given(np.array([2.0]))],
    "gl.bincount": [given(integers(0, 5, 9)), given(np.array([1, 2, 2]), np.array([0.5, 0.25, 2.0]))],
    "gl.isin": [given(I, J)],
}  # fmt: skip

"""A call of every function of NumPy's that asks its arguments what to do, and of every ufunc: what `kinds/test_numpy_functions.py` tries.

The letters: a (3, 4) and b (3, 4) positive, v (4,) rising, m (3, 3) well conditioned, s (3, 3) positive definite, n (3, 4) with a NaN,
i (4,) integers, t (4,) truth values.
"""

import numpy as np
from numpy._core.overrides import ARRAY_FUNCTIONS

_rng = np.random.default_rng(0)
_a, _m = _rng.uniform(0.5, 2.0, (3, 4)), _rng.normal(size=(3, 3))
ARRAYS = {
    "a": _a, "b": _rng.uniform(0.5, 2.0, (3, 4)), "v": np.array([0.3, 0.9, 1.7, 2.9]),
    "m": _m + 3 * np.eye(3), "s": _m @ _m.T + 3 * np.eye(3),
    "n": np.where(np.arange(12).reshape(3, 4) == 5, np.nan, _a), "i": np.array([2, 0, 3, 1]), "t": np.array([True, False, True, True]),
}  # fmt: skip

CALLS = """
interp(2 * v - 1, v, v * v)  interp(v, v, v * v, 9.0, 8.0)  interp(2 * v - 1, v, v * v, left=9.0, right=8.0)  trapezoid(a, b, axis=0)
trapezoid(a, v[:3], axis=0)  trapezoid(a, dx=0.5, axis=0)  correlate(v[:2], v, 'full')
correlate(v[:2], v)  correlate(v[:2], v, 'same')  correlate(v, v[:3], 'same')
correlate(v, v[1:3], 'valid')  cov(a, bias=True)
cov(a, b)  quantile(a, 0.3, axis=0, keepdims=True)  median(a, axis=1, keepdims=True)  nanmedian(n, axis=1, keepdims=True)
cumsum(a, axis=0)  nancumsum(n, axis=1)  var(a, axis=1, ddof=1, keepdims=True)  tensordot(a, b, axes=2)  pad(a, ((0, 1), (2, 0)))
pad(v, 2, 'edge')  gradient(v, 0.5)  convolve(v[:2], v, 'same')  average(a, axis=0, weights=v[:3])  roll(a, (1, 2), axis=(0, 1))
searchsorted(v, a, side='right')  ptp(a, axis=0, keepdims=True)
all(a > 1)  all(t, axis=0)  any(a > 1, axis=1)  allclose(a, b)  max(a)  amax(a, axis=0)  amin(a, axis=1, keepdims=True)  min(a)
angle(a)  append(a, b, axis=0)  append(a, [1.0, 2.0])  apply_along_axis(np.sum, 0, a)  apply_over_axes(np.sum, a, [0])  argmax(a)
argmin(a, axis=1)  argpartition(v, 2)  argsort(a)  argwhere(a > 1)  around(a, 1)  array(a, like=a)  array2string(a)  array_equal(a, a)
array_equiv(a, a)  array_repr(a)  array_split(v, 3)  array_str(a)  asanyarray(a, like=a)  asarray(a, like=a)
ascontiguousarray(a, like=a)  asfortranarray(a, like=a)  astype(a, np.float32)  atleast_1d(a)  atleast_2d(v)  atleast_3d(a)
average(a, axis=0)  average(a, axis=1, weights=v)  bincount(i, weights=v)  block([[a, b]])  broadcast_arrays(a, v)
broadcast_to(v, (2, 4))  can_cast(i, np.int64)  choose(i % 2, [v, v])  clip(a, 0.7, 1.5)  clip(a, None, v)  column_stack([v, v])
common_type(a, v)  compress([True, False, True], a, axis=0)  concatenate([a, b])  concatenate([a, v[None]], axis=0)
concatenate([a, b], axis=None)  convolve(v, v[:2])  convolve(v, v[:2], 'same')  convolve(v[:2], v, 'valid')  copy(a)
copyto(a.copy(), b)  corrcoef(a)  correlate(v, v[:2])  correlate(v, v[:2], 'full')  count_nonzero(a, axis=0)  cov(a)
cov(a, rowvar=False, ddof=0)  cross(m, s)  cumprod(a, axis=1)  cumsum(a)  cumulative_prod(a, axis=0)
cumulative_sum(a, axis=0, include_initial=True)  delete(a, 1, axis=0)  diag(v)  diag(m)  diag_indices_from(m)  diagflat(v, 1)
diagonal(a, 1)  diff(a)  diff(a, 2, axis=0)  digitize(a, [0.7, 1.2])  dot(a, v)  dot(m, s)  dot(v, v)  dsplit(a[None], 2)
dstack([a, b])  ediff1d(v)  einsum('ij,ij->i', a, b)  einsum('ij->ji', a)  einsum_path('ij,j', a, v)  empty_like(a)  expand_dims(a, 1)
extract(a > 1, a)  fill_diagonal(m.copy(), 0.0)  fix(a)  flatnonzero(a)  flip(a, 1)  flip(a)  fliplr(a)  flipud(a)  full_like(a, 2.0)
gradient(v)  gradient(a, axis=0)  gradient(a)  histogram(v)  histogram2d(v, v)  histogram_bin_edges(v)  histogramdd(a)  hsplit(a, 2)
hstack([a, b])  hstack([v, v])  i0(a)  imag(a)  inner(a, b)  insert(a, 1, 5.0, axis=0)  insert(v, 2, [7.0, 8.0])  interp(a, v, v * v)
intersect1d(v, v)  isclose(a, b)  iscomplex(a)  iscomplexobj(a)  isin(i, [1, 2])  isneginf(a)  isposinf(a)  isreal(a)  isrealobj(a)
ix_(i, i)  kron(m, s)  lexsort((v, v))  linspace(v, v + 1.0, 3)  geomspace(v, v + 1.0, 3)  logspace(v, v + 1.0, 3)  matrix_transpose(a)
may_share_memory(a, b)  mean(a)  mean(a, axis=(0, 1), keepdims=True)  median(a)  median(a, axis=0)  meshgrid(v, v)  min_scalar_type(a)
moveaxis(a, 0, 1)  nan_to_num(n)  nanargmax(n)  nanargmin(n, axis=0)  nancumprod(n, axis=0)  nancumsum(n)  nanmax(n, axis=0)
nanmean(n, axis=1)  nanmedian(n)  nanmin(n)  nanpercentile(n, 30)  nanprod(n, axis=0)  nanquantile(n, 0.3, axis=0)  nanstd(n, axis=0)
nansum(n)  nanvar(n, ddof=1)  ndim(a)  nonzero(a)  ones_like(a)  outer(v, v)  packbits(t)  pad(a, 1)
pad(a, ((0, 1), (2, 0)), mode='edge')  pad(v, 2, mode='reflect')  pad(v, 2, mode='mean')  partition(v, 2)  percentile(a, 30, axis=0)
piecewise(v, [v < 1.0], [0.0, 1.0])  place(a.copy(), a > 1, [1.0])  poly(v)  polyadd(v, v)  polyder(v)  polydiv(v, v[:2])
polyfit(v, v * v, 1)  polyint(v)  polymul(v, v)  polysub(v, v)  polyval(v, a)  prod(a)  prod(a, axis=(0, 1))  ptp(a, axis=0)
put(v.copy(), [0], [1.0])  put_along_axis(v.copy(), i, 0.0, 0)  putmask(v.copy(), t, 0.0)  quantile(a, 0.25)
quantile(a, [0.25, 0.5], axis=1)  ravel(a)  ravel_multi_index((i, i), (4, 4))  real(a)  real_if_close(a)  repeat(a, 2)
repeat(v, [1, 0, 2, 1])  require(a, like=a)  reshape(a, (4, 3))  resize(a, (2, 2))  result_type(a, v)  roll(a, 1)  roll(a, 1, axis=0)
rollaxis(a, 1)  roots(v)  rot90(a)  round(a, 1)  searchsorted(v, a)  select([a > 1, a > 0.7], [a, b], 0.0)  setdiff1d(v, v[:2])
setxor1d(v, v[:2])  shape(a)  shares_memory(a, b)  sinc(a)  size(a)  sort(a)  sort(a, axis=None)  sort_complex(v)  split(a, 2, axis=1)
squeeze(a[None])  stack([a, b], axis=1)  std(a, axis=0, ddof=1)  sum(a)  sum(a, axis=0)  sum(a, axis=(0, 1), keepdims=True)
sum(a, dtype=np.float32)  swapaxes(a, 0, 1)  take(a, [0, 2], axis=1)  take(a, i)  take_along_axis(v, i, 0)
tensordot(a, b, axes=([1], [1]))  tile(v, (2, 2))  trace(m)  transpose(a)  transpose(a[None], (2, 0, 1))  trapezoid(v)  trapezoid(a, v)
tril(m)  triu(a, 1)  tril_indices_from(m)  triu_indices_from(m)  trim_zeros(v)  union1d(v, v)  unique(v)  unique_all(v)
unique_counts(v)  unique_inverse(v)  unique_values(v)  unpackbits(i.astype(np.uint8))  unravel_index(i, (2, 2))  unstack(a)  unwrap(v)
vander(v)  vander(v, 2, increasing=True)  var(a)  var(a, axis=1, correction=1)  vdot(a, b)  vsplit(a, 3)  vstack([a, b])  vstack([v, v])
where(a > 1, a, b)  where(a > 1)  where(t, v, 0.0)  zeros_like(a)  lib.stride_tricks.sliding_window_view(v, 2)  linalg.cholesky(s)
linalg.cond(m)  linalg.cross(m, s)  linalg.det(m)  linalg.diagonal(a)  linalg.eig(m)  linalg.eigh(s)  linalg.eigvals(m)
linalg.eigvalsh(s)  linalg.inv(m)  linalg.lstsq(a, v[:3])  linalg.matmul(m, s)  linalg.matrix_norm(m)  linalg.matrix_power(m, 2)
linalg.matrix_rank(m)  linalg.matrix_transpose(a)  linalg.multi_dot([m, s, a])  linalg.norm(a)  linalg.norm(a, axis=1)
linalg.norm(v, 3)  linalg.outer(v, v)  linalg.pinv(m)  linalg.qr(m)  linalg.slogdet(m)  linalg.solve(m, a)  linalg.solve(m, v[:3])
linalg.svd(m)  linalg.svdvals(m)  linalg.tensordot(a, b, axes=2)  linalg.tensorinv(m, 1)  linalg.tensorsolve(m, v[:3])  linalg.trace(m)
linalg.vecdot(a, b)  linalg.vector_norm(a)  emath.arccos(a / 4)  emath.arcsin(a / 4)  emath.arctanh(a / 4)  emath.log(a)  emath.log10(a)
emath.log2(a)  emath.logn(2, a)  emath.power(a, 2)  emath.sqrt(a)  fft.fft(v)  fft.ifft(v)  fft.rfft(v)  fft.irfft(v)  fft.fft2(a)
fft.ifft2(a)  fft.rfft2(a)  fft.irfft2(a)  fft.fftn(a)  fft.ifftn(a)  fft.rfftn(a)  fft.irfftn(a)  fft.hfft(v)  fft.ihfft(v)
fft.fftshift(v)  fft.ifftshift(v)  add.reduce(a)  add.reduce(a, axis=None)  add.reduce(a, axis=1, keepdims=True)  multiply.reduce(a)
maximum.reduce(a)  minimum.reduce(a)  logaddexp.reduce(a)  add.accumulate(a)  multiply.accumulate(a, axis=1)  maximum.accumulate(v)
minimum.accumulate(v)  logaddexp.accumulate(v)  add.outer(v, v)  multiply.outer(a, v)  add.reduceat(v, [0, 2])
add.at(v.copy(), [0], 1.0)  hypot.reduce(a)  exp(a, where=a > 1, out=a.copy())  exp(a, dtype=np.float64)  add(a, 1.0, out=b.copy())
multiply(2.0, a)  subtract([1.0, 2.0, 3.0, 4.0], a)
"""
# What takes no array of numbers: dates, texts, files, and makers whose array is only an example.
WITHOUT_ARRAYS = frozenset("""
    arange busday_count busday_offset datetime_as_string empty eye frombuffer fromfile fromfunction fromiter fromstring full genfromtxt
    identity is_busday loadtxt ones save savetxt savez savez_compressed tri zeros
""".split())  # noqa: SIM905
# Of polynomials' coefficients, and of texts; these are in NumPy's list only once somebody has imported their modules.
ROOMS_APART = ("numpy.polynomial", "numpy.strings", "numpy.char", "numpy._core.strings", "numpy._core.defchararray")
SPECIAL = {
    "bitwise_and": "i, i", "bitwise_or": "i, i", "bitwise_xor": "i, i", "bitwise_count": "i", "invert": "i", "left_shift": "i, i",
    "gcd": "i, i", "right_shift": "i, i", "lcm": "i, i",
    "arccosh": "a + 1", "arcsin": "a / 4", "arccos": "a / 4", "arctanh": "a / 4", "ldexp": "v, i",
    "matmul": "m, s", "matvec": "m, v[:3]", "vecmat": "v[:3], m", "isnat": "np.array(['2020-01-01'], 'datetime64')",
}  # fmt: skip


def calls():
    """Every call as a text."""
    found = [call.strip() for line in CALLS.strip().splitlines() for call in line.split("  ") if call.strip()]
    ufuncs = sorted({value.__name__ for value in vars(np).values() if isinstance(value, np.ufunc)})
    return found + [f"{name}({SPECIAL.get(name) or ', '.join('ab'[: getattr(np, name).nin])})" for name in ufuncs]


def missing():
    """Functions of NumPy's that no call is of."""
    named = {call.split("(")[0].split(".")[-1] for call in calls()}
    return sorted({f.__name__ for f in ARRAY_FUNCTIONS if not f.__module__.startswith(ROOMS_APART)} - named - WITHOUT_ARRAYS)

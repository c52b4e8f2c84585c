"""The CPU backend: NumPy arrays. Half types are computed in float32 here, once for all rows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.backends import strided_results
from gradlab.device import CPU, Device
from gradlab.dtype import FLOAT32, HALF, immediate
from gradlab.op import NEVER, Op
from gradlab.quiet import quietly
from gradlab.spec import Spec


def number_spec(value: complex, arrays: list[Any]) -> Spec:
    """A number among array inputs counts as of the first array's dtype; the callers have promoted the arrays already."""
    for array in arrays:
        if array is not None and not isinstance(array, (int, float, complex)):
            return Spec((), array.dtype)
    return Spec((), np.result_type(value))


def input_specs(arrays: list[Any]) -> list[Spec | None]:
    """Specs of a row's inputs: arrays, None, Python numbers."""
    return [
        None if a is None else number_spec(a, arrays) if isinstance(a, (int, float, complex)) else Spec(a.shape, a.dtype) for a in arrays
    ]


CONVERTED = 1 << 9  # elements from which on a kernel is asked to convert
TURNED = 1 << 12  # elements of an array that does not lie row by row: NumPy's copy goes through memory in great steps


class CpuBackend:
    """Runs rows by their `cpu` functions."""

    staged = False

    def run(self, op: Op, arrays: list[Any], params: dict[str, Any], row_major: bool = False) -> Any:
        """row_major: whether the results lie row by row whatever the row says (`strided_results.py`)."""
        if op.view:
            return op.cpu(*arrays, **params)
        if not arrays:
            params = {k: v for k, v in params.items() if k != "device"}
        if not row_major and op.pays != NEVER:
            for array in arrays:
                if isinstance(array, np.ndarray) and array.size >= (min(op.pays, CONVERTED) if array.dtype in HALF else op.pays):
                    if (found := self._by_kernel(op, arrays, params)) is not None:
                        return found
                    break
        specs = input_specs(arrays)
        if op.dynamic:
            op.infer(*specs, **params)
            return op.quietly(*arrays, **params)
        found = op.infer(*specs, **params)
        outs = (found,) if isinstance(found, Spec) else tuple(found)
        row_major = row_major or op.lies is None
        given = arrays if row_major else [*arrays]
        for i, array in enumerate(arrays):
            if isinstance(array, (int, float, complex)):
                spec = specs[i]
                assert spec is not None
                arrays[i] = immediate(array, op.number_dtype(spec.dtype))
            elif not (row_major or array is None or array.flags.c_contiguous):
                return strided_results.run(op, given, params, outs, functools.partial(self.run, row_major=True), self.copy)
        if not op.exact and any(s is not None and s.dtype in HALF for s in specs):
            return self._run_half(op, arrays, outs, params)
        made = [np.empty(s.shape, s.dtype) for s in outs]
        try:
            op.quietly(*arrays, *made, **params)
        except TypeError as error:
            if type(error) is TypeError:
                raise
            kinds = ", ".join(s.dtype.name for s in specs if s is not None)
            raise TypeError(f"{op.name}: is not defined for {kinds}; convert first, for example with .float()") from error
        return made[0] if len(made) == 1 else tuple(made)

    def _by_kernel(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        """What a kernel makes of large arrays; None where NumPy is to compute."""
        specs = input_specs(arrays)
        given = [
            np.asarray(immediate(a, op.number_dtype(s.dtype))) if isinstance(a, (int, float, complex)) and s is not None else a
            for a, s in zip(arrays, specs, strict=True)
        ]
        return dispatch.by_kernel(op, given, params)

    def _run_half(self, op: Op, arrays: list[Any], outs: tuple[Spec, ...], params: dict[str, Any]) -> Any:
        wide = [a if a is None else self._converted(a, FLOAT32) if a.dtype in HALF else np.asarray(a) for a in arrays]
        kinds = [FLOAT32 if s.dtype in HALF else s.dtype for s in outs]
        found = None
        if "dtype" not in params and any(a is not None and a.size >= op.pays for a in wide):
            found = dispatch.by_kernel(op, wide, params)
        made = (found,) if isinstance(found, np.ndarray) else found
        if made is None or [m.dtype for m in made] != kinds:
            made = [np.empty(s.shape, kind) for s, kind in zip(outs, kinds, strict=True)]
            op.quietly(*wide, *made, **params)
        cast = [self._converted(m, s.dtype) if m.dtype != s.dtype else m for m, s in zip(made, outs, strict=True)]
        return cast[0] if len(cast) == 1 else tuple(cast)

    def _converted(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return dispatch.kernels().converted(array, dtype) if array.size >= CONVERTED else quietly(np.asarray(array).astype, dtype)

    def device_of(self, array: Any) -> Device:
        return CPU

    def to_numpy(self, array: Any) -> Any:
        return array

    def from_numpy(self, array: Any, device: Device) -> Any:
        return array

    def address(self, array: Any) -> int:
        place: int = array.__array_interface__["data"][0]
        return place

    def copy(self, array: Any) -> Any:
        return dispatch.kernels().copied(array) if array.size >= TURNED and not array.flags.c_contiguous else array.copy()

    def assign(self, target: Any, source: Any) -> None:
        if not isinstance(source, np.ndarray):
            source = dispatch.backend_of(source).to_numpy(source)
        np.copyto(target, source)


BACKEND = CpuBackend()
dispatch.register(np.ndarray, BACKEND)
dispatch.register_device("cpu", lambda: BACKEND)

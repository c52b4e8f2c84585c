"""Kernels of a user's own in CUDA C++: their source, and how they are launched."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.arguments import KINDS, packer_of
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.types import STORAGE
from gradlab.kernel import source_folders
from gradlab.spec import Spec, count, spec_of

_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*"([^"]+)"')
Extent = int | tuple[int, ...]


class Launch(NamedTuple):
    """One launch of a kernel.

    grid, block: blocks and threads of each; a number or up to three. Nothing is launched where one of them is 0.
    arguments: in the kernel's order: the name of an input, output or scratch array (its address; null for an input that is None), an int
    (`long long`), a float (`double`), or a NumPy scalar (`np.float32(eps)`: `float`). Left out: all inputs, all outputs, and the number of
    elements of the first output.
    shared: bytes of dynamic shared memory. kernel: another kernel of the source than the one it was made with.
    """

    grid: Extent
    block: Extent = 256
    arguments: Sequence[Any] | None = None
    shared: int = 0
    kernel: str | None = None


class CudaSource:
    """A kernel of one's own.

    source: CUDA C++ text, or the path of a file. It may `#include` gradlab's headers ("scalar_math.h", "common.cuh") and, from a file,
    its neighbours.
    kernel: the `__global__` function's name, or a name expression for a template's instance. `{x}` stands for the C++ type of the input
    or output x: "gate<{x}>". Halves are `__half` and `__nv_bfloat16` (include <cuda_fp16.h>, <cuda_bf16.h>).
    launch: a function of any of the operation's inputs and outputs (as Specs: `shape` and `dtype`; None for an absent input) and
    parameters, by their names, that returns a `Launch`, or several to run one after the other. It may look at nothing else. Left out: a
    thread for each element of the first output, in blocks of 256, with `Launch`'s default arguments.
    scratch: a function like `launch` that returns a dict of Specs: arrays that the kernels work with, by name.

    Inputs are made contiguous before; outputs are contiguous and not initialised.
    """

    def __init__(
        self,
        source: str | Path,
        kernel: str,
        launch: Callable[..., Launch | Sequence[Launch]] | None = None,
        *,
        scratch: Callable[..., dict[str, Spec]] | None = None,
    ) -> None:
        path = Path(source) if isinstance(source, Path) or ("\n" not in source and source.endswith((".cu", ".cuh"))) else None
        text = path.read_text(encoding="utf-8") if path is not None else str(source)
        if "__global__" not in text:
            raise ValueError("CudaSource: the source defines no __global__ function; an expression is given to custom_op as a plain string")
        plain = re.split(r"[<:]", kernel.replace("gradlab::", ""))[0] if isinstance(kernel, str) else ""
        if not plain or not re.search(rf"\b{re.escape(plain)}\b", text):
            raise ValueError(f"CudaSource: kernel is {kernel!r}, which the source does not define")
        for what, function in (("launch", launch), ("scratch", scratch)):
            if function is not None and not callable(function):
                raise TypeError(f"CudaSource: {what} is a function that returns how to launch, not {type(function).__name__}")
        self.label = path.name if path is not None else f"{plain}.cu"
        self.text = with_headers(text, self.label, [path.parent] if path is not None else [])
        self.kernel, self.launch, self.scratch = kernel, launch, scratch

    def __repr__(self) -> str:
        return f"CudaSource({self.label!r}, {self.kernel!r})"

    def check(self, name: str, known: Sequence[str]) -> None:
        """Raise ValueError if something asks for a name that the operation does not have."""
        for what, function in (("launch", self.launch), ("scratch", self.scratch)):
            unknown = [n for n in _wanted(function) if n not in known] if function is not None else []
            if unknown:
                raise ValueError(f"custom_op {name}: {what} asks for {unknown}; it may ask for {', '.join(known)}")
        unknown = [n for n in re.findall(r"\{(\w*)\}", self.kernel) if n not in known]
        if unknown:
            raise ValueError(f"custom_op {name}: the kernel {self.kernel!r} names {unknown}; it may name {', '.join(known)}")


def with_headers(text: str, label: str, folders: Sequence[Path], seen: set[Path] | None = None) -> str:
    """The text with the headers of these folders, and gradlab's own, put in place of their include lines: whoever caches a program by its
    text then notices a changed header. `#line` keeps the lines of errors what they are in `label`."""
    seen = set() if seen is None else seen
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _INCLUDE.match(line)
        places = [folder / match[1] for folder in (*folders, *source_folders("cuda"))] if match else []
        found = next((place.resolve() for place in places if place.is_file()), None)
        if match and found is None:
            raise FileNotFoundError(f'#include "{match[1]}": there is no such file beside the source or among gradlab\'s headers')
        if found is None or found in seen:
            lines.append("" if match or line.strip() == "#pragma once" else line)
            continue
        seen.add(found)
        inner = with_headers(found.read_text(encoding="utf-8"), found.name, [found.parent], seen)
        lines += [f'#line 1 "{found.name}"', inner.rstrip("\n"), f'#line {number + 1} "{label}"']
    return "\n".join(lines) + "\n"


def _wanted(function: Callable[..., Any]) -> list[str]:
    return [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]


def rule(name: str, cuda: CudaSource, inputs: Sequence[str], outputs: Sequence[str]) -> Rule:
    """The launch rule of an operation with such a kernel."""
    wanted = None if cuda.launch is None else _wanted(cuda.launch)
    wanted_scratch = [] if cuda.scratch is None else _wanted(cuda.scratch)

    def run(work: Work, arrays: list[Any], made: list[Any], params: dict[str, Any]) -> None:
        ready = [None if a is None else work.contiguous(a) for a in arrays]
        known: dict[str, Any] = {**dict(zip(inputs, ready)), **dict(zip(outputs, made))}
        described = {n: None if a is None else spec_of(a) for n, a in known.items()} | params
        if cuda.scratch is not None:
            for key, spec in cuda.scratch(**{n: described[n] for n in wanted_scratch}).items():
                known[key] = work.empty(tuple(spec.shape), np.dtype(spec.dtype))
        total = count(made[0].shape)
        if cuda.launch is None or wanted is None:
            found: Any = Launch(-(-total // 256))
        else:
            found = cuda.launch(**{n: described[n] for n in wanted})
        types = {n: STORAGE[a.dtype.name] for n, a in known.items() if a is not None}
        for one in [found] if isinstance(found, Launch) else found:
            if not isinstance(one, Launch):
                raise TypeError(f"{name}: launch returns a gl.library.Launch or several, not {type(one).__name__}")
            arguments = [*inputs, *outputs, total] if one.arguments is None else one.arguments
            _launch(name, work, cuda, one, types, [_argument(name, a, known) for a in arguments])

    return Rule(run, repeats=True)


def _argument(name: str, value: Any, known: dict[str, Any]) -> Any:
    if isinstance(value, str):
        if value not in known:
            raise ValueError(f"{name}: a launch names the array {value!r}; there are {', '.join(known)}")
        return known[value]
    if isinstance(value, bool):
        return np.bool_(value)
    if type(value) not in KINDS:
        raise TypeError(f"{name}: a launch's argument is an array's name, an int, a float or a NumPy scalar, not {type(value).__name__}")
    return value


def _three(name: str, what: str, extent: Any) -> tuple[int, int, int]:
    values = extent if isinstance(extent, tuple) else (extent,)
    if not 1 <= len(values) <= 3 or not all(isinstance(v, (int, np.integer)) and v >= 0 for v in values):
        raise ValueError(f"{name}: a launch's {what} is a number or up to three, not {extent!r}")
    x, y, z = (*map(int, values), 1, 1)[:3]
    return x, y, z


def _launch(name: str, work: Work, cuda: CudaSource, one: Launch, types: dict[str, str], values: list[Any]) -> None:
    grid, block = _three(name, "grid", one.grid), _three(name, "block", one.block)
    if 0 in grid or 0 in block:
        return
    kernel = (one.kernel or cuda.kernel).format(**types)
    found = work.compiler.generated(("library", cuda.text, kernel), lambda: cuda.text, [kernel], cuda.label)[kernel]
    if block[1:] == (1, 1):
        work.launch_grid(found, grid, block[0], *values, shared=one.shared)
        return
    driver = work.driver  # the work's own launches have blocks of one dimension
    arrays = [v is None or type(v) is driver.array_type for v in values]
    packer = packer_of(tuple("P" if array else KINDS[type(v)] for array, v in zip(arrays, values)))
    packet = packer.fill(*[(0 if v is None else driver.pointer(v)) if array else v for array, v in zip(arrays, values)])
    driver.launch(found, grid, block, packet.address, one.shared)
    packer.done(packet)

"""All kernels there are, as programs to compile without a GPU; and the rows that have none.

`programs(rows)` is for checks (`gradlab.testing.kernels`): every kernel of every file, for every combination of its template arguments,
and every elementwise and reduction row for the dtypes that it takes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda import launch
from gradlab.backends.cuda.compiler import file_source, inlined, program
from gradlab.backends.cuda.generate import Operand, Signature, elementwise_source, main_dtype, reads
from gradlab.backends.cuda.launch import templates
from gradlab.backends.cuda.reduction import reduction_source
from gradlab.backends.cuda.types import compute_type
from gradlab.dtype import ALL, BOOL, COMPLEX, FLOATING, INEXACT
from gradlab.kernel import Elementwise, Gemm, Kernel, Library, Movement, Reduction, source_folders
from gradlab.op import Op
from gradlab.spec import Spec

LEAST_ARCHITECTURE, LAST = 75, 1000
DTYPES = tuple(d.dtype for d in ALL)


class Program(NamedTuple):
    """One translation unit: what to call it, its text (headers inlined), the kernels to instantiate, the first and the last architecture
    on which they run (75 is sm_75)."""

    label: str
    source: str
    names: list[str]
    least_arch: int
    most_arch: int = LAST

    def runs_on(self, architectures: Iterable[int]) -> list[int]:
        """Those of the architectures on which its kernels run."""
        return [a for a in architectures if self.least_arch <= a <= self.most_arch]


FLOATS = ("float", "double", "__half", "__nv_bfloat16")
COMPLEXES = ("gradlab::Complex<float>", "gradlab::Complex<double>")
INTEGERS = ("signed char", "short", "int", "long long", "unsigned char")
EVERY = (*FLOATS, *INTEGERS, "bool")
COMPUTED_WIDE = (
    ("float", "float"),
    ("double", "double"),
    ("__half", "__half"),
    ("__half", "float"),
    ("__nv_bfloat16", "__nv_bfloat16"),
    ("__nv_bfloat16", "float"),
)

# What the template parameters of kernels stand for, by the parameter's text; by "file parameters" where a file differs.
ARGUMENTS: dict[str, Sequence[Any]] = {
    "class S": FLOATS,
    "class Word": ("unsigned char", "unsigned short", "unsigned int", "unsigned long long"),
    "class T": ("float", "double"),
    "class Index": ("unsigned int", "long long"),
    "class Key": ("unsigned int", "unsigned long long"),
}
SPECIAL: dict[str, Sequence[tuple[Any, ...]]] = {
    **templates.special(),
    "scan.cu running": tuple(itertools.product((*FLOATS, *COMPLEXES, "long long"), (0, 1))) + tuple((s, 2) for s in FLOATS),
    "scan.cu recurrence": tuple((s,) for s in (*FLOATS, *COMPLEXES)),
    "scan.cu running_extreme": tuple(itertools.product((*FLOATS, *INTEGERS), ("false", "true"))),
    "index.cu take": tuple(
        itertools.product(("unsigned char", "unsigned short", "unsigned int", "unsigned long long", "uint4"), ("unsigned int", "long long"))
    ),
    "scatter.cu scatter": tuple(itertools.product((*FLOATS, *INTEGERS, *COMPLEXES), ("unsigned int", "long long"))),
    "segment.cu segments": tuple((s,) for s in EVERY),
    "segment.cu join_segments": tuple((s,) for s in EVERY),
    **{f"sparse.cu {name}": tuple((s,) for s in (*FLOATS, *INTEGERS)) for name in ("spmm", "spmv", "sddmm")},
    "prefix.cu prefix": tuple(itertools.product((*FLOATS, *COMPLEXES, "long long"), (0, 1))) + tuple((s, 2) for s in FLOATS),
    "movement.cu unfold_backward": tuple((s,) for s in (*FLOATS, *COMPLEXES)),
    "prefix.cu prefix_extreme": tuple((s,) for s in (*FLOATS, *INTEGERS)),
    "gemm.cu grouped_gemm": tuple(itertools.product(FLOATS, ("false", "true"))),
    "gemm.cu gemm": (*COMPUTED_WIDE, ("long long", "long long"), ("int", "int"), *((s, s) for s in COMPLEXES)),
    "vision.cu col2im": COMPUTED_WIDE,
    **{
        f"resample.cu {name}": tuple(itertools.product((*FLOATS, *INTEGERS), ("unsigned int", "long long")))
        for name in ("resample", "resample_backward")
    },
    "movement.cu convert": tuple(itertools.product(EVERY, EVERY)),
    "random.cu normal_of": (*((s, s) for s in FLOATS), *((s, "double") for s in FLOATS if s != "double")),
    "random.cu bernoulli": (*((s, s) for s in FLOATS[2:]), *itertools.product(EVERY, FLOATS[:2])),
    "random.cu integers": tuple((s,) for s in (*FLOATS, *INTEGERS)),
    "pool.cu max_pool": tuple((s,) for s in (*FLOATS, *INTEGERS)),
    "index.cu add_rows": tuple((s,) for s in (*FLOATS, *INTEGERS, *COMPLEXES)),
    "conv.cu convolve": tuple(
        (s, out, mode, rows) for s, out in COMPUTED_WIDE for mode in ((0, 1, 2) if s == out else (2,)) for rows in (16, 64)
    ),
    "optim.cu advance": tuple((t, e, k) for t in ("float", "double") for e in FLOATS for k in range(12)),
    "optim.cu update": tuple(itertools.product(FLOATS, range(12))),
    "sort.cu searchsorted": tuple(itertools.product((*FLOATS, *INTEGERS), ("int", "long long"))),
    **{
        f"{file} {name}": tuple((s,) for s in EVERY)
        for file, names in {
            "sort.cu": ("keys", "run_starts", "isin", "firsts", "median"),
            "unique.cu": ("column_keys", "first_rows"),
        }.items()
        for name in names
    },
    **{f"sort.cu {name}": tuple((s,) for s in (*FLOATS, *INTEGERS)) for name in ("order_as", "convert_counts")},
    "layout.cu truth": tuple((s,) for s in (*EVERY, *COMPLEXES)),
    "sort.cu count_numbers": tuple((s,) for s in INTEGERS),
}
for _file, _tensor in (("attention.cu", False), ("attention_tensor.cu", True)):
    for _name in ("attend", "attention_gradient"):
        SPECIAL[f"{_file} {_name}"] = launch.attention.instances(_name, _tensor)
SPECIAL |= {f"{_file} convolve_planes": launch.conv.instances(_file == "conv_tensor.cu") for _file in launch.conv.PLANES}
SPECIAL[f"{launch.conv.RING} convolve_ahead"] = launch.conv.ring_instances()
SPECIAL |= {
    f"{_file} {_name}{_way}": launch.recurrent.instances()
    for _file, _name in ((launch.recurrent.ALONE, "recurrent_steps"), (launch.recurrent.CLUSTER, "recurrent_cluster"))
    for _way in ("", "_backward")
}
TENSOR, TILED = ("attention_tensor.cu", "conv_tensor.cu", launch.conv.RING), ("attention.cu", "conv_tile.cu")
_KERNEL = re.compile(r"(?:template <([^>]*)>\s*)?__global__ void (?:__\w+__\([^)]*\)\s*)*(\w+)\(")


def kernels_of(file: str) -> list[tuple[str, str]]:
    """Name and template parameters ("" for none) of each kernel that a file defines."""
    return [(match[2], match[1] or "") for match in _KERNEL.finditer(file_source(file))]


def _values(parameter: str) -> Sequence[Any]:
    """What a template parameter stands for."""
    return ("false", "true") if parameter.startswith("bool ") else ARGUMENTS[parameter]


def instances(file: str, name: str, parameters: str) -> list[str]:
    """The name expressions of a kernel's instances. KeyError for template parameters that are not described above."""
    if not parameters:
        return [f"gradlab::{name}"]
    chosen = SPECIAL.get(f"{file} {name}")
    if chosen is None:
        chosen = tuple(itertools.product(*(_values(p.strip()) for p in parameters.split(","))))
    return [f"gradlab::{name}<{', '.join(map(str, arguments))}>" for arguments in chosen]


def reach(file: str, name: str) -> tuple[int, int]:
    """The first and the last architecture on which an instance runs (`launch.attention.on_tensor_cores`): products of half types are left
    to tensor cores wherever there are such, on sm_75 of float16 alone, and there only of heads that fit its shared memory."""
    if file == launch.recurrent.CLUSTER:
        return 90, LAST
    if file in TENSOR:
        ring = file == launch.conv.RING or re.search(r"attend<.*, [23]>$", name)  # copies in the background
        first = 75 if re.search(r"<__half, (?!128,)", name) and not ring else 80
        return first, LAST
    if file in TILED and re.search(r"(attend|attention_gradient|convolve_planes)<__", name):
        return LEAST_ARCHITECTURE, 75
    return LEAST_ARCHITECTURE, LAST


def file_programs() -> Iterator[Program]:
    """The kernels of `kernels/*.cu`, one program for each file and the architectures on which they run; for a file that is not described
    here a program that does not compile."""
    for path in sorted(source_folders("cuda")[0].glob("*.cu")):
        try:
            names = [one for name, parameters in kernels_of(path.name) for one in instances(path.name, name, parameters)]
        except KeyError as error:
            problem = f'#error "backends/cuda/catalogue.py does not say what a template parameter stands for: {error}"'
            yield Program(path.name, problem, [], LEAST_ARCHITECTURE)
            continue
        source = inlined(file_source(path.name))
        for first, last in sorted({reach(path.name, name) for name in names}):
            label = path.name if last == LAST else f"{path.name} up to sm_{last}"
            label += f" from sm_{first}" if path.name in (*TENSOR, launch.recurrent.CLUSTER) else ""
            yield Program(label, source, [n for n in names if reach(path.name, n) == (first, last)], first, last)


# ---------------------------------------------------------------- rows


def _taken(op: Op, dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The output's dtype where a row takes operands of a dtype, else None."""
    if (dtype in COMPLEX and type(op.complex) is not str) or (op.promote == "float" and dtype not in INEXACT):
        return None
    if dtype not in INEXACT and (op.name.endswith("_backward") or (op.promote is None and not op.exact)):
        return None
    inputs = [Spec((4,), BOOL if name in ("condition", "mask") else dtype) for name in op.inputs]
    params: dict[str, Any] = (
        dict.fromkeys(op.params, 1.0) | {p: dtype for p in op.params if p == "dtype"} | {p: (4,) for p in op.params if p == "shape"}
    )
    if "size" in params:
        params["size"] = 4
    try:
        return op.infer(*inputs, **params).dtype
    except TypeError:
        return None


def casts_to(dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    """What `cast` makes of a dtype: anything, but of complex numbers only such, and truth."""
    return [d for d in DTYPES if dtype not in COMPLEX or d in COMPLEX or d == BOOL]


def signatures(op: Op, dtypes: Iterable[np.dtype[Any]] = DTYPES) -> Iterator[Signature]:
    """The kernels of an elementwise row for operands of one dtype: contiguous (of several operands also with a number as the last) and
    strided. A conversion gives every dtype."""
    for dtype in dtypes:
        out = _taken(op, dtype)
        if out is None:
            continue
        operands = tuple(Operand(name, BOOL if name in ("condition", "mask") else dtype) for name in op.inputs)
        main = compute_type(main_dtype(operands, out))
        read = tuple((p, main if p in ("lo", "hi") else "double") for p in op.params if reads(op.cuda.expression, p))
        for target in casts_to(dtype) if op.name == "cast" else (out,):
            yield Signature(op.name, operands, target, read, True)
            yield Signature(op.name, operands, target, read, False)
        if len(operands) > 1 and dtype != BOOL:
            number = (*operands[:-1], operands[-1]._replace(immediate=True))
            yield Signature(op.name, number, out, read, True)


def reduced(op: Op) -> list[np.dtype[Any]]:
    """The dtypes that a reduction row takes."""
    exact = op.exact or op.name in ("sum", "prod")
    return [d for d in DTYPES if (type(op.complex) is str if d in COMPLEX else d in FLOATING or (exact and d != BOOL))]


def row_programs(rows: Mapping[str, Op]) -> Iterator[Program]:
    """The generated kernels: elementwise rows together by dtype and form, a reduction for all dtypes."""
    groups: dict[tuple[str, bool], list[tuple[Op, Signature]]] = {}
    for op in rows.values():
        if isinstance(op.cuda, Elementwise):
            for signature in signatures(op):
                kind = signature.operands[-1].dtype if signature.operands else signature.out
                groups.setdefault((kind.name, signature.contiguous), []).append((op, signature))
    for (dtype_name, contiguous), members in groups.items():
        source = inlined(program("elementwise.cuh", *(elementwise_source(op, s) for op, s in members)))
        names = [f"gradlab::{s.kernel}" for _, s in members]
        yield Program(f"elementwise {dtype_name} {'contiguous' if contiguous else 'strided'}", source, names, LEAST_ARCHITECTURE)
    for op in rows.values():
        if isinstance(op.cuda, Reduction):
            parts = [reduction_source(op, d, BOOL if op.name in ("all", "any") else d) for d in reduced(op)]
            names = [f"gradlab::{name}" for _, found in parts for name in found.values()]
            source = inlined(program("reduce.cuh", *(text for text, _ in parts)))
            yield Program(f"reduction {op.name}", source, names, LEAST_ARCHITECTURE)


def programs(rows: Mapping[str, Op]) -> Iterator[Program]:
    """Every kernel there is. `rows`: `gradlab.ops.ROWS`."""
    yield from file_programs()
    yield from row_programs(rows)


def fallbacks(rows: Mapping[str, Op]) -> list[str]:
    """The rows that have no kernel and run on the host."""
    found = []
    for name, op in rows.items():
        description = op.cuda
        if op.view or isinstance(description, (Elementwise, Reduction)):
            continue
        if op.dynamic:
            known = name in launch.DYNAMIC
        elif isinstance(description, Kernel):
            known = (description.file, description.name) in launch.RULES
        else:
            known = isinstance(description, (Gemm, Movement, Library)) and name in launch.BY_ROW
        if not known:
            found.append(name)
    return found

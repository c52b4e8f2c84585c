"""Rows as stages of a mega-kernel: what each costs there, and its text.

A stage is a loop of the one block over its elements, with all sizes and strides as constants. See `mega.py` and `kernels/stages.cuh`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradlab import ops
from gradlab.backends.cuda.generate import is_light
from gradlab.backends.cuda.reduction import flags_of, total_name
from gradlab.backends.cuda.types import STORAGE, compute_type
from gradlab.backends.native.lowerings.looping import broadcast
from gradlab.backends.native.lowerings.loops import Loop
from gradlab.backends.native.place import Place
from gradlab.dtype import FLOATING
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.ir.graph import Call, Value
from gradlab.kernel import Reduction
from gradlab.spec import count

THREADS = 256
# Microseconds on a large GPU, estimated from the latencies of its memories: of a stage by itself, of one turn of a thread's loop.
STAGE, TURN, DEAR_TURN, PRODUCT_TURN = 0.2, 0.02, 0.06, 0.006


class At(NamedTuple):
    """Where a stage finds a value: the text of its pointer, and its place there (strides in elements; the offset is in the text)."""

    text: str
    place: Place

    @property
    def strides(self) -> tuple[int, ...]:
        return self.place.strides


class Writer:
    """The text of a kernel while it is written. `at` tells where a value lies; `function` puts a definition before the kernel."""

    def __init__(self, at: Callable[[Value], At], site: Callable[[Call], int]) -> None:
        self.at = at
        self.site = site
        self.functions: dict[str, str] = {}

    def function(self, text: str) -> str:
        """The name of a definition with @F in it as its name; equal texts are one."""
        return self.functions.setdefault(text, f"@K_f{len(self.functions)}")

    def pointer(self, value: Any) -> str:
        """A value's pointer, or a null pointer where it was left out."""
        return self.at(value).text if isinstance(value, Value) else "nullptr"


class Stage(NamedTuple):
    """cost: microseconds, None for calls that have no stage. write: the lines."""

    cost: Callable[[Call, dict[int, Place]], float | None]
    write: Callable[[Call, Writer], list[str]]


STAGES: dict[str, Stage] = {}
Cost = Callable[[Call, dict[int, Place]], float | None]
Write = Callable[[Call, Writer], list[str]]


def stage(*names: str, cost: Cost) -> Callable[[Write], Write]:
    """Register how rows are written."""

    def register(write: Write) -> Write:
        STAGES.update((name, Stage(cost, write)) for name in names)
        return write

    return register


def floating(call: Call) -> bool:
    """Whether all results are floating-point numbers."""
    return all(v.spec.dtype in FLOATING for v in call.outputs)


def packed(call: Call, places: dict[int, Place], *skipped: int) -> bool:
    """Whether the inputs, but for some, lie in row-major order without gaps."""
    return all(places[x.id].contiguous for i, x in enumerate(call.inputs) if isinstance(x, Value) and i not in skipped)


def size_of(call: Call) -> int:
    """Elements of the first result."""
    return count(call.outputs[0].spec.shape)


def turns(elements: float) -> float:
    """How often each thread's loop turns."""
    return math.ceil(elements / THREADS)


# ---------------------------------------------------------------- loops over elements


def offset(strides: Sequence[int], shape: Sequence[int], index: str) -> str:
    """The text of where element `index`, counted in row-major order, lies."""
    terms, below = [], 1
    total = count(shape)
    for n, s in zip(reversed(shape), reversed(strides)):
        if n != 1 and s:
            part = index if below == 1 else f"{index} / {below}"
            if below * n < total:
                part = f"({part}) % {n}" if below > 1 else f"{part} % {n}"
            terms.append((below, n, s, part))
        below *= n
    expected, walk = 1, bool(terms)
    for (at, n, s, _) in terms:
        walk = walk and at == expected and s == terms[0][2] * expected
        expected *= n
    if walk and expected == total:  # one walk from the first to the last
        return index if terms[0][2] == 1 else f"{index} * {terms[0][2]}"
    return " + ".join(f"({part}) * {s}" if s != 1 else f"({part})" for _, _, s, part in terms) or "0"


def loop_cost(loop: Loop) -> float:
    """Microseconds of a fused loop."""
    light = all(is_light(c.op.cuda.expression) for c in loop.calls)
    return STAGE + (TURN if light else DEAR_TURN) * turns(math.prod(loop.shape))


def write_loop(loop: Loop, writer: Writer) -> list[str]:
    """A fused loop: its intermediate values stay in registers."""
    functions, names = loop.functions(cpu=False)
    # Functions of this loop get names of the whole kernel.
    renamed = {}
    for i, text in enumerate(functions):
        renamed[f"@K_f{i}"] = writer.function(text.replace(f"@K_f{i}(", "@F(", 1))
    names = {n: renamed[name] for n, name in names.items()}
    lines = [f"for (int i = threadIdx.x; i < {math.prod(loop.shape)}; i += {THREADS}) {{"]
    for i, v in enumerate(loop.loaded):
        at = writer.at(v)
        where = offset(broadcast(at.place, loop.shape), loop.shape, "i")
        lines.append(f"    const {compute_type(v.spec.dtype)} x{i} = load({at.text}[{where}]);")
    lines += ["    " + line for line in loop.body(names, {v.id: f"x{i}" for i, v in enumerate(loop.loaded)})]
    lines += [f"    {writer.at(v).text}[i] = store<{STORAGE[v.spec.dtype.name]}>({loop.at[v.id]});" for v in loop.stored]
    return [*lines, "}"]


def _copy_cost(call: Call, places: dict[int, Place]) -> float | None:
    return STAGE + TURN * turns(size_of(call))


@stage("view", "clone", "contiguous", cost=_copy_cost)
def copy(call: Call, writer: Writer) -> list[str]:
    """A view that has to copy, element by element in row-major order."""
    source, target = writer.at(call.inputs[0]), writer.at(call.outputs[0])
    where = offset(source.strides, source.place.shape, "i")
    return [f"for (int i = threadIdx.x; i < {size_of(call)}; i += {THREADS}) {target.text}[i] = {source.text}[{where}];"]


# ---------------------------------------------------------------- reductions


def lanes_of(results: int, length: int) -> int:
    """How many neighbouring threads share one result."""
    lanes = 1
    while lanes < 32 and results * lanes * 2 <= THREADS and length >= lanes * 4:
        lanes *= 2
    return lanes


def _reduced(call: Call) -> tuple[int, int]:
    """The number of results, and of elements that one is made of."""
    results = size_of(call)
    return results, count(call.inputs[0].spec.shape) // max(results, 1)


def _reduction_cost(call: Call, places: dict[int, Place]) -> float | None:
    if not isinstance(call.op.cuda, Reduction) or not all(isinstance(x, Value) for x in call.inputs):
        return None
    results, length = _reduced(call)
    if results == 0 or length == 0 or any(v.spec.dtype.name not in STORAGE for v in (*call.inputs, *call.outputs)):
        return None
    lanes = lanes_of(results, length)
    return STAGE + TURN * turns(results * lanes) * math.ceil(length / lanes)


def _walks(shape: Sequence[int], strides: Sequence[int], dims: Sequence[int]) -> tuple[str, str]:
    """Where result o begins, and where its element k lies from there."""
    kept = [d for d in range(len(shape)) if d not in dims]
    return (
        offset([strides[d] for d in kept], [shape[d] for d in kept], "o"),
        offset([strides[d] for d in dims], [shape[d] for d in dims], "k"),
    )


def _reduce(call: Call, inputs: Sequence[At], out: At, dims: Sequence[int], description: Reduction, writer: Writer) -> list[str]:
    shape, names = inputs[0].place.shape, call.op.inputs
    results = count([n for d, n in enumerate(shape) if d not in dims])
    length = count(shape) // results
    storage, kinds = STORAGE[out.place.dtype.name], [compute_type(x.place.dtype) for x in inputs]
    kind = total_name(description, out.place.dtype)
    flags = "".join(f" constexpr bool {p} = {'true' if call.params[p] else 'false'}; (void){p};" for p in flags_of(call.op))
    heads = ", ".join(f"{k} {name}" for k, name in zip(kinds, names))
    made = writer.function(f"""struct @F {{
    typedef {kind} T;
    static __device__ __forceinline__ T load({heads}) {{ return static_cast<T>({description.load}); }}
    static __device__ __forceinline__ T of(T a, T b) {{ return static_cast<T>({description.combine}); }}
    static __device__ __forceinline__ T identity() {{ return {description.identity}; }}
    static __device__ __forceinline__ {storage} finish(T a, int n) {{{flags} (void)n; return store<{storage}>({description.finish}); }}
}};""")
    lanes = lanes_of(results, length)
    walks = [_walks(shape, broadcast(x.place, shape), dims) for x in inputs]
    loads = ", ".join(f"load({x.text}[({start}) + ({step})])" for x, (start, step) in zip(inputs, walks))
    return [
        f"for (int base = 0; base < {results}; base += {THREADS // lanes}) {{",
        f"    const int o = base + threadIdx.x / {lanes}, lane = threadIdx.x % {lanes};",
        f"    {kind} total = {made}::identity();",
        f"    if (o < {results})",
        f"        for (int k = lane; k < {length}; k += {lanes}) total = {made}::of(total, {made}::load({loads}));",
        f"    total = Team<{lanes}>::template total<{made}, 0>(total);",
        f"    if (lane == 0 && o < {results}) {out.text}[o] = {made}::finish(total, {length});",
        "}",
    ]


@stage("sum", "mean", "amax", "amin", "all", "any", "prod", "mse", cost=_reduction_cost)
def reduce(call: Call, writer: Writer) -> list[str]:
    """A reduction over any dimensions, of all where the row has none."""
    inputs = [writer.at(x) for x in call.inputs]
    dims = call.params.get("dim", tuple(range(len(inputs[0].place.shape))))
    return _reduce(call, inputs, writer.at(call.outputs[0]), dims, call.op.cuda, writer)


# ---------------------------------------------------------------- products


def _product_cost(call: Call, places: dict[int, Place]) -> float | None:
    a, b, *_ = call.inputs
    if not floating(call) or not isinstance(a, Value) or not isinstance(b, Value) or len(b.spec.shape) != 2 or size_of(call) == 0:
        return None
    if len(a.spec.shape) != 2 and (call.op.name != "linear" or not places[a.id].contiguous or not a.spec.shape):
        return None
    inner = a.spec.shape[-1]
    lanes = lanes_of(size_of(call), inner)
    more = 2 if call.op.name == "matmul_with_sums" else 1
    return STAGE * more + PRODUCT_TURN * turns(size_of(call) * lanes) * math.ceil(inner / lanes) * (1 + 0.1 * (more - 1)) + TURN


@stage("linear", "matmul", "matmul_with_sums", cost=_product_cost)
def product(call: Call, writer: Writer) -> list[str]:
    """Products of matrices, with a bias or (in a device's line) the sums of the first one's rows."""
    a, b = writer.at(call.inputs[0]), writer.at(call.inputs[1])
    y = writer.at(call.outputs[0])
    inner = a.place.shape[-1]
    rows, columns = count(a.place.shape[:-1]), y.place.shape[-1]
    steps = a.strides if len(a.strides) == 2 else (inner, 1)
    bias, bias_step = "nullptr", 0
    if call.op.name == "linear":
        b_row, b_column = b.strides[1], b.strides[0]
        if isinstance(call.inputs[2], Value):
            bias, bias_step = writer.at(call.inputs[2]).text, writer.at(call.inputs[2]).strides[0]
    else:
        b_row, b_column = b.strides
    kind = STORAGE[y.place.dtype.name]
    lines = [
        f"product<{lanes_of(rows * columns, inner)}, {kind}>({a.text}, {steps[0]}, {steps[1]}, {b.text}, {b_row}, {b_column}, {bias}, "
        f"{bias_step}, {y.text}, {rows}, {columns}, {inner});"
    ]
    if call.op.name == "matmul_with_sums":
        total = Call(ops.reduction.sum_, (call.inputs[0],), {"dim": (1,), "keepdim": False}, call.outputs[1:])
        lines += _reduce(total, [a], writer.at(call.outputs[1]), (1,), ops.reduction.sum_.cuda, writer)
    return lines


def by_element(unit: Unit, call: Call) -> bool:
    """Whether thread i writes the elements i, i + THREADS, … of a call's result: loops do, and products whose results are not shared."""
    if unit.loop:
        return True
    return call.op.name in ("linear", "matmul") and lanes_of(size_of(call), call.inputs[0].spec.shape[-1]) == 1

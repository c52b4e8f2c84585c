"""Indices in kernels have as many bits as they need: the product of two sizes may be larger than an int.

Every product of two ints in a kernel, CUDA or C++, stands in REVIEWED with the reason why it fits, or the test fails. `integer_products.py`
says what counts as one.
"""

import re

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda.launch import conv, linalg, resample, windows
from gradlab.backends.native.place import Place
from gradlab.graph.executables.cuda import mega
from gradlab.spec import Spec

from kinds.integer_products import Names, bare, products, shared
from repository import ROOT

SOURCES = ("kernels/cuda", "kernels/cpu", "gradlab/deploy/runtime")  # each with names of its own
MATRIX = "a matrix has at most 2^15 rows and columns (launch/linalg.py, LARGEST)"
PLANES = "neither side of a launch has 2^31 elements, nor a window's reach (launch/windows.py, few, few_columns and each)"
CONVOLUTION = "images times positions, a weight and a window's reach count at most 2^29 (launch/conv.py, takes)"
OFFSETS = "arrays have at most 2^30 elements, places in space 15 bits (launch/conv.py, fits_planes, small_strides)"
TILE = "places in a tile of shared memory, or in registers"
PART = "of a number of 32 bits the part below it"
SMALL = "a stage's arrays are small, and reach less far than 2^31 elements (graph/executables/cuda/mega.py, _reach)"
# Of a file's products those that match: why they fit.
MATRICES = {r"(pair\.)?[a-z]+ \* (n|k|l|q|c|m|kept|columns|length|width)": MATRIX, r"blockIdx\.x \* 7": "an int64 follows"}
REVIEWED: dict[str, dict[str, str]] = {
    "cholesky.cu": MATRICES, "eigh.cu": MATRICES, "expm.cu": MATRICES, "matrix.cuh": MATRICES, "qr.cu": MATRICES, "solve.cu": MATRICES,
    "svd.cu": MATRICES,
    "attention.cuh": {
        r".* \* (WIDTH|BN|BM|16|M|m|\(BN \+ Engine::PAD\))": TILE + "; a length has at most 2^31 - 128 (launch/attention.py, takes)",
        r"plane \* tiles": "a number of a block",
    },
    "channel.cu": {r"k % V \* each": "at most 8 times 256"},
    "conv.cu": {
        r".*\b(win|c\.windows)\.(size|out|kernel|dilation|stride)\[[\dd]\]": CONVOLUTION,
        r"(c\.images|image|number|channel|group|sign) \* .*": CONVOLUTION, r"output / .* \* channels": CONVOLUTION,
        r"tile_row \* tiles": "a number of a block",
    },
    "conv_planes.cuh": {
        r".* \* (NC|THREADS|L[AB])": TILE,
        r".*\b(p\.(image|channel|column|row|places\[1\]|positions\[1\]|(stride|dilation)\[[01]\])|width|all|channels)": OFFSETS,
    },
    "conv_ring.cu": {r"BM \* BN": TILE},
    "conv_ring.cuh": {
        r".* \* (L[AB]|THREADS|STAGE|NC|BK|BN|\(THREADS / 4\)|\(HEIGHT \* WIDTH\)|WIDTH|HEIGHT)|Stages \* STAGE|sizeof.*": TILE,
        r"tile_row \* across": "a number of a block", r"static_cast<int>\(tile_row\) \* BM": OFFSETS,
        r".*\b(p\.positions\[1\]|all|share)": OFFSETS,
    },
    "conv_tile.cuh": {
        r".* \* [ab]_width": TILE, r"tile_row \* tiles": "a number of a block", r"static_cast<int>\(tile_row\) \* BM": OFFSETS,
        r".*\b(p\.(image|channel|column|row|m|places\[1\]|positions\[1\]|(stride|dilation)\[[01]\])|all|channels|width|share)": OFFSETS,
    },
    "direct_weight_gradient.cpp": {r"q\.own \* s\.y\.step\[1\]": "64 bits: steps are int64_t"},
    "direct_weight_gradient.h": {r"R \* W": TILE, r"j \* s\.step\[1\]": "64 bits: steps are int64_t"},
    "gemm.c": {r"r \* panels": TILE},
    "grid.cpp": {r"before \* along": "images have fewer than 2^31 pixels (lowerings/grid.py)"},
    "integer_products.h": {r"\(int32_t\)a\[i\] \* b\[i\]": "of two bytes"},
    "integer_windows.h": {r"from\[.*\] \* factor": "of two bytes"},
    "loss.cu": {r"line \* n|static_cast<unsigned>\(outer\) \* static_cast<unsigned>\(classes\)": PART},
    "recurrent_steps.cuh": {
        r"\(my\.row \+ r\) \* p\.first_row": "the fields are int64",
        r".*\b[ig] \* [ig]|d\.at\[.\] \* v\.at\[.\]": "gates, no numbers of them",
        r"2 \* senders \* U|.* \* (most|U|H|Rows|my\.sequences|my\.threads|my\.slices)": "sizes of what lies in shared memory",
    },
    "norm.cu": {r"Lanes \* Items": TILE, r"blockIdx\.y \* 2": "at most 256 parts"},
    "pool.cu": {r".*\bw\.(size|out|kernel|stride|dilation)\[[\dd]\]\)?": PLANES, r"blockIdx\.x \* 256": PLANES},
    "conv_behind_pool.cpp": {r"k % 3 \* W": TILE},
    "resample.cu": {
        r"blockIdx\.x \* (8|256)|whole_floor\(at, size\) \* size": "inputs and outputs count at most 2^30 (launch/resample.py, takes)",
    },
    "rows.cuh": {r"V \* Beside|k / V \* \(V \* Beside\)|k % V \* each|thread \* \(packed_ \? V : 1\)": TILE},
    "stages.cuh": {r".* \* ([ab]_row|[ab]_column|bias_step|dy_step|classes|columns|count)": SMALL},
    "vision.cu": {r".*\bw\.(size|out|kernel|stride|dilation)\[[\dd]\]": PLANES, r"blockIdx\.x \* 256": PLANES},
    "warp_tile.cuh": {r".* \* (stride|width|m|Threads|D|N|\(D / N\))": TILE},
    "windows.cuh": {
        r"((size|out|kernel)\[\d\] \* )+(size|out|kernel)\[\d\]": PLANES,
        r"(planes|rows) \* static_cast<unsigned>\(sizes\[[12]\]\)": PART,
    },
    "winograd.h": {r"i \* R": TILE},
}


def found_in(room: str) -> dict[str, list[tuple[int, str]]]:
    """The products of every source in a room."""
    files = [f for f in sorted((ROOT / room).iterdir()) if f.suffix in {".cu", ".cuh", ".h", ".cpp", ".c"}]
    texts = {f.name: bare(f.read_text(encoding="utf-8")) for f in files}
    names = Names(part for text in texts.values() for part in shared(text))
    return {name: list(products(text, names)) for name, text in texts.items()}


def test_every_product_of_two_ints_is_reviewed():
    used = set()
    for room in SOURCES:
        for file, found in found_in(room).items():
            for line, text in found:
                reason = next((pattern for pattern in REVIEWED.get(file, {}) if re.fullmatch(pattern, text)), None)
                assert reason is not None, f"{room}/{file}:{line}: `{text}` may have more than 32 bits: cast a factor, or say here why not"
                used.add((file, reason))
    assert {file for file, _ in used} == set(REVIEWED), "a file whose products are all wide needs no reasons"


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("int f(int a, int b) {\n    return a * b;\n}", False),
        ("int f(int o, int size, int out) {\n    return ((o + 1) * size + out - 1) / out;\n}", False),
        ("int64 f(int a, int64 b) {\n    return a * b;\n}", True),
        ("int64 f(int a, int b) {\n    return static_cast<int64>(a) * b;\n}", True),
        ("int64 f(int a, int b) {\n    return static_cast<int64>(a * b);\n}", False),
        ("void f(int n) {\n    const int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x);\n}", False),
        ("void f(int n) {\n    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;\n}", True),
        ("void f(float x, int n) {\n    const float y = x * n;\n}", True),
        ("struct S {\n    int rows, size[3];\n};\nint f(S s) {\n    return s.rows * s.size[1];\n}", False),
    ],
)
def test_what_counts_as_a_product_of_ints(text, wide):
    assert (not list(products(text, Names(shared(text))))) == wide


def specs(*shapes: tuple[int, ...]) -> list[Spec]:
    return [Spec(shape, np.dtype(np.float32)) for shape in shapes]


def test_launch_rules_leave_what_an_int_cannot_number_to_the_host():
    """Shapes alone: no such memory is taken."""
    pool = {"kernel": (3,), "stride": (2,), "padding": (1,), "dilation": (1,)}
    assert windows.few(specs((1, 1, 1 << 30)), specs((1, 1, 1 << 29)), pool)
    assert not windows.few(specs((1, 1, (1 << 31) - 4)), specs((1, 1, 1 << 30)), pool)
    assert not windows.few(specs((1, 1, 1 << 16, 1 << 15)), specs((1, 1, 1 << 8, 1 << 8)), {})
    assert not windows.few(specs((1, 1, 8)), specs((1, 1, 2)), pool | {"padding": (1 << 30,)})
    columns = {**pool, "kernel": (1 << 12,), "outputs": (1 << 20,)}
    assert not windows.few_columns(specs((1, 1, 1 << 21)), specs((1, 1 << 12, 1 << 20)), columns)
    shapes = specs((1, 1, 8), (1, 1, 1)), specs((1, 1, 3))
    params = {"stride": (1 << 29,), "padding": (1 << 29,), "dilation": (1,), "groups": 1}
    assert not conv.takes(conv.FORWARD)(*shapes, params)
    assert conv.takes(conv.FORWARD)(*shapes, params | {"stride": (1,), "padding": (1,)})
    assert linalg.LARGEST**2 < 2**31
    assert 2 * (resample.LARGEST // 2) <= resample.LARGEST


def test_blocks_of_pooled_planes_are_numbered_by_an_int():
    assert 256 * -(-windows.LARGEST // 256) <= 2**31 - 1


def test_stages_of_a_mega_kernel_do_not_reach_beyond_an_int():
    near, far = (Place(0, 0, (100, 2), (step, 1), np.dtype(np.float32)) for step in (1 << 20, 1 << 25))
    assert mega._reach(near) < 2**31 < mega._reach(far)


def test_cells_of_an_adaptive_pooling():
    """Output times input size is over 2^31."""
    x = np.random.default_rng(0).standard_normal((1, 1, 70001)).astype(np.float32)
    on = {device: gl.tensor(x, device=device, requires_grad=True) for device in ("cpu", "cuda")}
    for t in on.values():
        values, indices = gl.nn.functional.adaptive_max_pool1d(t, 40000, return_indices=True)
        starts = np.arange(40000) * 70001 // 40000
        ends = -(-(np.arange(40000) + 1) * 70001 // 40000)
        cells = [starts[k] + np.argmax(x[0, 0, starts[k] : ends[k]]) for k in range(40000)]
        assert np.array_equal(indices.cpu().numpy()[0, 0], cells)
        assert np.array_equal(values.detach().cpu().numpy(), x[..., cells])
        values.sum().backward()
    assert np.array_equal(on["cpu"].grad.numpy(), on["cuda"].grad.cpu().numpy())


def test_the_divisor_of_a_window_with_much_padding():
    """Its three sizes multiply to 8 · 10^9."""
    x = gl.ones(1, 1, 1, 1, 1, device="cuda")
    pooled = gl.nn.functional.avg_pool3d(x, 2000, stride=2000, padding=1000)
    assert np.array_equal(pooled.cpu().numpy(), np.full((1, 1, 1, 1, 1), 1 / 2000**3, np.float32))

"""A program is compiled for with no more of the hand-written kernels than it needs: what runs is never more than `needs.of` says."""

import ctypes
import random
import re

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.native import compiler, needs
from gradlab.backends.native.compile_jobs import Job
from gradlab.graph.executables.native import executable
from gradlab.graph.executables.native.executable import NativeExecutable

pytestmark = pytest.mark.skipif(not compiler.compiles(), reason="no C++ compiler")
PARTS = re.compile(r"GRADLAB_(?:PART|NOTE)|needed\(")


def partial(path):
    """Whether a source has parts, itself or by its headers, which begin with its own name or are those of convolutions and products."""
    text = path.read_text()
    own = ("direct.h", "direct_weight_gradient.h", "winograd_results.h", "winograd_weight_gradient.h", "epilogues.h", "product.h")
    return bool(PARTS.search(text)) or any(f'#include "{name}"' in text for name in own)


def test_every_kernel_of_a_file_with_parts_says_what_it_needs():
    files = {path.name for path in compiler.KERNELS.glob("*.cpp") if partial(path)}
    known = {compiler._sources()[name] for name in needs._NEEDS}
    assert known <= files and files - known == {"gemm_double.cpp"}  # which is seldom wanted
    by_file = compiler.by_hand()
    assert {name for file in known for name in by_file[file]} == set(needs._NEEDS)


def test_functions_are_found_whole_in_their_sources():
    for file, names in compiler.by_hand().items():
        text = compiler._text(file)
        assert [found[1] for found in compiler._WHOLE.finditer(text)] == names, file
        left = compiler._WHOLE.sub("", text)
        assert left.count("{") == left.count("}"), file
        assert not compiler._DEFINED.search(left), file


def gradients(x, w, g, **how):
    y = gl.nn.functional.conv2d(x, w, **how)
    return (y.detach(), *gl.autograd.grad(y, [x, w], g))


def convolutions(choose):
    """Convolutions of all kinds of kernels: sizes around those of vectors and blocks, in both orders of memory."""
    groups = choose.choice([1, 1, 1, 2, 5, 24])
    given, own = (choose.choice([1, 2, 3, 7, 8, 9, 16, 20, 24, 33, 40]) if groups == 1 else choose.choice([1, 1, 3, 8]) for _ in range(2))
    side = choose.choice([1, 3, 3, 3, 5])
    how = {"stride": choose.choice([1, 1, 2]), "padding": choose.choice([0, 1, 2]), "dilation": choose.choice([1, 1, 2]), "groups": groups}
    size = choose.choice([5, 8, 13, 17])
    x, w = gl.randn(choose.choice([1, 3, 4]), given * groups, size, size + 3), gl.randn(own * groups, given, side, side)
    if choose.random() < 0.4:
        x = x.to(memory_format=gl.channels_last)
    if size + 2 * how["padding"] <= (side - 1) * how["dilation"]:
        how["dilation"] = 1
        how["padding"] = side // 2
    g = gl.randn(*gl.nn.functional.conv2d(x, w, **how).shape)
    if choose.random() < 0.3:
        g = g.to(memory_format=gl.channels_last)
    return gradients, (x.requires_grad_(), w.requires_grad_(), g), how


def product(x, w, g, ending=None, bias=None):
    y = gl.nn.functional.linear(x, w, bias)
    if ending is not None:
        y = ending(y)
    return (y.detach(), *gl.autograd.grad(y, [x, w], g))


def products(choose):
    m, n, k = (choose.choice([1, 2, 3, 4, 17, 40, 64]) for _ in range(3))
    ending = choose.choice([None, None, gl.relu, lambda y: gl.nn.functional.gelu(y, approximate="tanh"), gl.tanh])
    x, w, g = gl.randn(m, k), gl.randn(n, k), gl.randn(m, n)
    return product, (x.requires_grad_(), w.requires_grad_(), g), {"ending": ending, "bias": choose.choice([None, gl.randn(n)])}


def normed(x, w, g, scale, shift):
    y = gl.nn.functional.conv2d(x, w, padding=1)
    y = gl.relu(gl.nn.functional.batch_norm(y, None, None, scale, shift, training=True))
    return (y.detach(), *gl.autograd.grad(y, [x, w], g))


def norms(choose):
    """Statistics that a convolution takes along."""
    given, own = choose.choice([(3, 16), (16, 16), (8, 24), (24, 6)])
    x, w, g = gl.randn(4, given, 8, 8), gl.randn(own, given, 3, 3), gl.randn(4, own, 8, 8)
    return normed, (x.requires_grad_(), w.requires_grad_(), g, gl.ones(own), gl.zeros(own)), {}


def pooled(x, w, g):
    y = gl.nn.functional.max_pool2d(gl.relu(gl.nn.functional.conv2d(x, w, padding=1)), 2)
    return (y.detach(), *gl.autograd.grad(y, [x, w], g))


def pools(choose):
    given, own = choose.choice([(3, 16), (16, 16), (8, 24)])
    x, w, g = gl.randn(4, given, 8, 8), gl.randn(own, given, 3, 3), gl.randn(4, own, 4, 4)
    return pooled, (x.requires_grad_(), w.requires_grad_(), g), {}


@pytest.fixture
def watched(monkeypatch):
    """Programs run by libraries that note which parts have run. Gives what is called after each run."""
    known, found, opened = {}, [], compiler.libraries

    def whole(file, names, parts):
        full = compiler.job("", file)
        if file not in {compiler._sources()[name] for name in needs._NEEDS}:
            return full
        known[file] = Job(full.target.with_name(f"noting-{full.target.name}"), (*full.arguments, "-DGRADLAB_REACHED"), full.source)
        return known[file]

    def libraries(names, text="", wanted=None):
        found.append(dict(wanted or {}))
        return opened(names, text, wanted)

    monkeypatch.setattr(compiler, "_for_a_program", whole)
    monkeypatch.setattr(compiler, "libraries", libraries)
    monkeypatch.setattr(compiler, "LOOPS", ("-O0",))  # generated texts are not what is looked at, and most of the time is theirs
    run = NativeExecutable.run

    def checked(self, *args, **kwargs):
        reached = {file: ctypes.c_int64.in_dll(compiler.loaded(job.target), "gradlab_reached") for file, job in known.items()}
        for number in reached.values():
            number.value = 0
        run(self, *args, **kwargs)
        wanted = dict.fromkeys(known, 0)
        for name, parts in self.wanted.items():
            if (file := compiler._sources().get(name)) in wanted:
                wanted[file] |= parts
        for file, number in reached.items():
            assert number.value & ~wanted[file] == 0, (file, bin(number.value), bin(wanted[file]), self.wanted)
            seen[file] = seen.get(file, 0) | number.value

    seen: dict[str, int] = {}
    made = NativeExecutable.__init__

    def making(self, line):
        before = len(found)
        made(self, line)
        self.wanted = found[before] if len(found) > before else {}

    monkeypatch.setattr(NativeExecutable, "run", checked)
    monkeypatch.setattr(NativeExecutable, "__init__", making)
    monkeypatch.setattr(NativeExecutable, "short", property(lambda self: False))
    assert executable.NativeExecutable is NativeExecutable
    return seen


def tried(family, seed):
    choose = random.Random(seed)
    gl.manual_seed(seed)
    function, args, how = family(choose)
    step = gl.compile(lambda *given: function(*given, **how))
    wanted = step(*args)
    for _ in range(2):
        for a, b in zip(step(*args), wanted, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-3, atol=2e-3 * float(abs(b).max() + 1))


MANY = pytest.param(convolutions, 60, marks=pytest.mark.slow)


@pytest.mark.parametrize(("family", "count"), [(products, 25), MANY, (convolutions, 4), (norms, 3), (pools, 2)])
def test_no_more_runs_than_is_needed(family, count, watched):
    for seed in range(count):
        tried(family, seed)
    assert watched and any(watched.values())


@pytest.mark.slow
@pytest.mark.parametrize("family", [products, convolutions, norms, pools])
def test_a_part_computes_the_bits_of_the_whole(family, monkeypatch):
    """The same program by parts, and by whole files."""
    for seed in range(6):
        found = []
        for parts in (True, False):
            if parts:
                monkeypatch.setattr(compiler, "_for_a_program", compiler.part)
            else:
                monkeypatch.setattr(compiler, "_for_a_program", lambda file, names, needs: compiler.job("", file))
            choose = random.Random(seed)
            gl.manual_seed(seed)
            function, args, how = family(choose)
            step = gl.compile(lambda *given, f=function, h=how: f(*given, **h))
            step(*args)
            found.append([a.numpy().tobytes() for a in step(*args)])
        assert found[0] == found[1], seed

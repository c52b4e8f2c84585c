"""cuFFT and its stand-in: which calls a transform comes to, plans that are kept, refusals, captures, misuse, the real library's symbols."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda import nvidia_libraries
from gradlab.backends.cuda.cufft import binding, plans
from gradlab.backends.cuda.cufft.binding import Status, TransformError, Type
from gradlab.backends.cuda.cufft.plans import Plan

X = np.random.default_rng(0).normal(size=(4, 96)).astype(np.float32)


@pytest.fixture
def transforms(cuda):
    """The stand-in, without plans before and after."""
    if cuda.driver.name != "emulated":
        pytest.skip("only on the emulated GPU")
    found = plans.transforms_of(cuda.driver)
    found.plans.clear()
    found._warned = False
    yield found
    found.library.refused = lambda made: None
    found.plans.clear()


def close(found, want):
    np.testing.assert_allclose(found.cpu().numpy(), want, atol=1e-5 * np.abs(want).max())


def test_a_plan_is_made_once(transforms):
    x = gl.tensor(X, device="cuda")
    transforms.library.calls.clear()
    close(gl.fft.rfft(x), np.fft.rfft(X))
    make = ["cufftCreate", "cufftSetAutoAllocation", "cufftMakePlanMany64"]
    run = ["cufftSetStream", "cufftSetWorkArea", "cufftExecR2C"]
    assert transforms.library.calls == make + run
    close(gl.fft.rfft(x * 2), np.fft.rfft(2 * X))
    assert transforms.library.calls == make + run * 2
    close(gl.fft.rfft(x[:2]), np.fft.rfft(X[:2]))  # another batch, another plan
    assert len(transforms.plans) == 2
    gl.fft.rfft(x[:, :8])  # the own kernels
    assert len(transforms.plans) == 2


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_strided_and_unaligned_inputs_stay_whole(transforms, name):
    real = name in ("rfft", "ihfft")
    for dtype in ("float32", "float64"):
        given = X.astype(dtype) if real else (X + 1j * X[::-1]).astype(np.result_type(dtype, "complex64"))
        x = gl.tensor(given, device="cuda")
        function, want = getattr(gl.fft, name), getattr(np.fft, name)
        for ours, theirs in ((x, given), (x[:, 1:90], given[:, 1:90]), (x.mT[:, 1:], given.T[:, 1:]), (x[1:, 1:], given[1:, 1:])):
            if ours.shape[-1] > 16:
                close(function(ours, norm="ortho"), want(theirs, norm="ortho"))
            else:
                close(function(ours, dim=0), want(theirs, axis=0))
        np.testing.assert_array_equal(x.cpu().numpy(), given)


def test_gradients(transforms):
    x = gl.tensor(X[:, :20].astype(np.float64), device="cuda", requires_grad=True)
    host = gl.tensor(X[:, :20].astype(np.float64), requires_grad=True)
    for t in (x, host):
        (gl.fft.irfft2(gl.fft.rfft2(t) * 2, (4, 20)).pow(2).sum() + gl.fft.rfft2(t).abs().sum()).backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), host.grad.numpy(), atol=1e-10)
    assert len(transforms.plans) > 2


def test_what_is_refused_is_remembered(transforms):
    asked = []

    def refuse(made):
        asked.append(made.n)
        return Status.NOT_SUPPORTED

    transforms.library.refused = refuse
    x = gl.tensor(X, device="cuda")
    with pytest.warns(RuntimeWarning, match="own kernels.*CUFFT_NOT_SUPPORTED"):
        close(gl.fft.fft(x), np.fft.fft(X))
    close(gl.fft.fft(x), np.fft.fft(X))
    assert asked == [(96,)] and list(transforms.plans.values()) == [None]
    transforms.plans.clear()
    transforms.library.refused = lambda made: Status.ALLOC_FAILED  # not for good
    close(gl.fft.fft(x), np.fft.fft(X))
    assert not transforms.plans
    assert not transforms.library.states  # what was begun is given back


def test_captures(transforms):
    x = gl.tensor(X, device="cuda")
    gl.fft.fft(x)
    (plan,) = transforms.plans.values()
    graph = gl.cuda.CUDAGraph()
    with gl.cuda.graph(graph):
        y, other = gl.fft.fft(x), gl.fft.fft(x[:3])  # the second has no plan: a capture makes none
    assert len(transforms.plans) == 1 and plan in transforms.captured
    transforms.plans.clear()  # the graph's plan lives on
    assert plan.handle in transforms.library.states
    x.mul_(3)
    gl.fft.fft(gl.ones(64, 96, device="cuda"))  # may not write into the graph's work space
    graph.replay()
    gl.cuda.synchronize()
    close(y, np.fft.fft(3 * X))
    close(other, np.fft.fft(3 * X[:3]))


def test_a_compiled_program(transforms):
    function = gl.compile(lambda t: gl.fft.irfft(gl.fft.rfft(t) * 2, 96))
    for _ in range(3):
        close(function(gl.tensor(X, device="cuda")), 2 * X)


def test_old_plans_are_dropped(monkeypatch, transforms):
    monkeypatch.setattr(plans, "MOST_PLANS", 2)
    before = len(transforms.library.states)
    for n in range(20, 26):
        gl.fft.fft(gl.tensor(X[:, :n].copy(), device="cuda"))
    assert len(transforms.plans) <= 2 and len(transforms.library.states) - before <= 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"space": 0}, "NO_WORKSPACE"), ({"source": 4}, "UNALIGNED_DATA"), ({"source": 8}, "EXEC_FAILED.*input reaches 8 bytes beyond"),
        ({"target": 8}, "output reaches"), ({"kind": Type.Z2Z}, "INVALID_PLAN.*not made for Z2Z"), ({"handle": 10**6}, "no plan"),
    ],
    ids=lambda value: str(value)[:12],
)  # fmt: skip
def test_misuse(transforms, changed, message):
    driver = transforms.driver
    x, y = (driver.empty((96,), np.dtype("complex64")) for _ in range(2))
    plan = Plan(transforms, (96,), 1, Type.C2C)
    plan.space = changed.get("space", plan.space)
    plan._execute = f"cufftExec{changed.get('kind', plan.kind).name}"
    kept, plan.handle = plan.handle, changed.get("handle", plan.handle)
    with pytest.raises(TransformError, match=message):
        plan.run(driver.pointer(x) + changed.get("source", 0), driver.pointer(y) + changed.get("target", 0))
    plan.handle = kept


def test_missing_library(monkeypatch):
    class Finder:
        def load_nvidia_dynamic_lib(name):
            raise RuntimeError(f"Failure finding {name}.so")

    class NoLibrary:
        name = "real"

    monkeypatch.setattr(nvidia_libraries.importlib, "import_module", lambda name: Finder)
    with pytest.warns(RuntimeWarning, match="slow: cuFFT is not installed: pip install nvidia-cufft"):
        assert plans.transforms_of(NoLibrary()) is None
    with pytest.raises(nvidia_libraries.LibraryMissing, match="cannot be used"):
        nvidia_libraries.opened("no_such_library.so", "cuFFT", binding.PROTOTYPES)


def test_the_real_librarys_functions(cuda):
    """Where it is installed: it has every function that we call, and refuses a plan that is not there as the stand-in does."""
    try:
        library = binding.load()
    except nvidia_libraries.LibraryMissing as error:
        pytest.skip(str(error))
    version = ctypes.c_int()
    assert library.cufftGetVersion(ctypes.addressof(version)) == 0 and version.value >= 11000
    assert library.cufftDestroy(12345) == Status.INVALID_PLAN


def test_types():
    dtypes = {letter: np.dtype(name) for letter, name in zip("RCDZ", ("float32", "complex64", "float64", "complex128"), strict=True)}
    for kind in Type:
        source, target = kind.name.split("2")
        assert plans.type_of(dtypes[source], dtypes[target]) is kind

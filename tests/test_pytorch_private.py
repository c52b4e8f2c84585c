"""Private helpers of PyTorch's that libraries import, as `gradlab.as_torch` gives them."""

import inspect
import subprocess
import sys
import textwrap
import typing
from importlib import import_module

import numpy as np
import pytest

import gradlab as gl
from gradlab.pytorch import core, libraries, private, table
from gradlab.pytorch.operations import ops


def test_each_is_where_the_table_says():
    for path, (module, name) in table.RENAMED.items():
        if module != "typing":
            assert hasattr(import_module(module), name), path
    named = {name for module, name in table.RENAMED.values() if module == private.__name__}
    own = {n for n, v in vars(private).items() if getattr(v, "__module__", "") == private.__name__ and not inspect.ismodule(v)}
    assert own <= named  # nothing is there for nobody


def test_checks():
    for check, kind in (
        (private._check, RuntimeError), (private._check_value, ValueError), (private._check_index, IndexError),
        (private._check_type, TypeError), (private._check_not_implemented, NotImplementedError),
    ):  # fmt: skip
        check(True)
        with pytest.raises(kind, match="why"):
            check(False, lambda: "why")
        with pytest.raises(kind, match="got False"):
            check(False)
    private._check_is_size(3, max=3)
    private._check_tensor_all(gl.tensor([True, True]))
    private._assert_async(gl.tensor(1))
    for wrong in (
        lambda: private._check_is_size(-1), lambda: private._check_is_size(4, max=3),
        lambda: private._check_tensor_all(gl.tensor([True, False])), lambda: private._assert_async(gl.tensor(0), "zero"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            wrong()


def test_numbers():
    gl.manual_seed(0)
    root = gl.randn(2, 3, 3, dtype=gl.float64)
    precision = root @ root.mT + gl.eye(3, dtype=gl.float64)
    factor = private._precision_to_scale_tril(precision)
    np.testing.assert_allclose((factor @ factor.mT).numpy(), gl.inverse(precision).numpy(), atol=1e-12)
    assert gl.equal(factor, factor.tril())
    assert 0 < private._clipped_sigmoid(gl.tensor(-200.0)) and private._clipped_sigmoid(gl.tensor(200.0)) < 1
    assert private.binomial(gl.tensor([3.0, 4.0]), gl.tensor([1.0, 0.0])).tolist() == [3, 0]
    shape = gl.tensor([2.0, 50.0], requires_grad=True)
    private._standard_gamma(shape.expand(4000, 2)).mean(0).sum().backward()
    np.testing.assert_allclose(shape.grad.numpy(), 1, atol=0.1)
    assert private._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
    assert private._get_activation_fn("relu")(gl.tensor(-1.0)) == 0
    private.assert_allclose(gl.tensor([1.0]), [1.0 + 1e-7])
    with pytest.raises(AssertionError):
        private.assert_allclose(gl.tensor([1.0]), np.array([1.1]))
    for wrong in (lambda: private.binomial(shape, shape, gl.Generator()), lambda: private._standard_gamma(shape, gl.Generator())):
        with pytest.raises(NotImplementedError, match="default generator"):
            wrong()
    with pytest.raises(RuntimeError, match="tanh"):
        private._get_activation_fn("tanh")


def test_libraries_of_operations():
    library, inside = libraries.Library("tests_library", "DEF"), libraries.Library("tests_library", "IMPL", "CPU")
    assert library.define("twice(Tensor x) -> Tensor") == "twice" and libraries.made("tests_library::once") is None
    twice = ops.tests_library.twice
    with pytest.raises(NotImplementedError, match="no implementation for CPU"):
        twice(gl.ones(2))
    library.impl("twice", lambda x: 3 * x, "CompositeImplicitAutograd")
    assert twice.default(gl.ones(())) == 3
    inside.impl("tests_library::twice", lambda x: 2 * x)
    x = gl.ones(2, requires_grad=True)
    twice(x).sum().backward()
    assert x.grad.tolist() == [2, 2] and "tests_library.twice" in repr(twice)
    library.impl("twice", lambda x: 5 * x, "Autograd")
    assert twice(x).tolist() == [5, 5] and twice(gl.ones(1)).tolist() == [2]
    custom = gl.library.custom_op("tests_library::_half", lambda x: x / 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    library.impl("_half", lambda x: x / 4, "CPU")
    assert ops.tests_library._half.default is custom and custom(gl.ones(())) == 0.25
    with pytest.raises(RuntimeError, match="was not defined"):
        library.impl("thrice", lambda x: x)
    with pytest.raises(ValueError, match="kind"):
        libraries.Library("tests_library", "ABC")


def test_what_arguments_of_to_say():
    parse = core._nn._parse_to
    assert parse("cpu", gl.float64) == (gl.device("cpu"), gl.float64, False, None)
    assert parse(gl.ones(1)) == (gl.device("cpu"), gl.float32, False, None)
    assert parse(dtype=gl.int64, non_blocking=True) == (None, gl.int64, True, None) and parse(gl.float16, True)[2] is True
    assert core._nn.gelu is gl.nn.functional.gelu and private.unpack_dual(3) == (3, None)


def test_distributions_made_by_an_instance():
    class Scaled(gl.distributions.Normal):
        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Scaled, _instance)
            return super().expand(batch_shape, _instance=new)

    class Squashed(gl.distributions.TransformedDistribution):
        def __init__(self, loc):
            super().__init__(gl.distributions.Normal(loc, 1.0), [gl.distributions.TanhTransform()])

        def expand(self, batch_shape, _instance=None):
            return super().expand(batch_shape, _instance=self._get_checked_instance(Squashed, _instance))

    for dist in (Scaled(gl.zeros(2), 1.0), Squashed(gl.zeros(2))):
        found = dist.expand((3, 2))
        assert type(found) is type(dist) and found.batch_shape == (3, 2) and found.sample((4,)).shape == (4, 3, 2)


def test_scripts_and_samplers():
    assert private.wait(private.fork(lambda x: x + 1, 2)) == 3 and private.interface(int) is int
    for value, kind, fits in (
        ([1, 2], typing.List[int], True), ([1, "a"], typing.List[int], False), ({"a": 1}, typing.Dict[str, int], True),  # noqa: UP006
        ((1, "a"), tuple[int, str], True), ((1, 2, 3), tuple[int, ...], True), ((1,), tuple[int, str], False),
        (None, typing.Optional[int], True),  # noqa: UP045
        (1.5, typing.Union[int, str], False), (1, (str, int), True), (None, None, True), ("a", int, False),  # noqa: UP007
    ):  # fmt: skip
        assert private.is_instance(value, kind) is fits, (value, kind)
    endless = iter(private._InfiniteConstantSampler())
    assert [next(endless) for _ in range(3)] == [None] * 3


def test_what_nobody_has_may_be_imported():
    script = """
        import gradlab.as_torch
        import torch
        from torch.nn.init import _calculate_correct_fan, _never_heard_of
        assert _calculate_correct_fan(torch.ones(2, 3), "fan_in") == 3 and not hasattr(torch.nn.init, "_never_heard_of")
        import warnings
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
        torch._check(torch.onnx.TrainingMode.EVAL.value == 0 and torch.legacy_contiguous_format is torch.contiguous_format)
        try:
            from torch.nn.init import _other
        except ImportError:
            print("tried")
        try:
            _never_heard_of()
        except NotImplementedError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "gradlab has no torch.nn.init._never_heard_of: it is PyTorch's own machinery"

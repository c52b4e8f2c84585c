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
from gradlab.pytorch import private, table


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

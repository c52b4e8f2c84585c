"""Everything public is called as in PyTorch: every signature of every name that gradlab has, by position and by name."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
import pytorch_signatures

import gradlab as gl

SIGNATURES = pytorch_signatures.read()
# Of files, which test_serialization.py is about.
ELSEWHERE = frozenset(("pickle_module", "pickle_protocol", "mmap"))


def because(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


OTHERWISE = {
    **because("cuBLAS alone has products of another type", "torch.addmm torch.baddbmm torch.bmm torch.mm"),
    **because("what stands alone has a name of its own there", "torch.isin torch.result_type torch.tensor_split Tensor.tensor_split"),
    **because("the stub names what the function takes by position only, or otherwise", """
        torch.from_numpy torch.set_num_threads torch.tensor Tensor.new Tensor.new_tensor Tensor.random_ Tensor.uniform_
        Tensor.requires_grad_ nn.functional.one_hot nn.functional.rrelu_ torch.rrelu
    """),
    **because("it has options of a compiler that is not there", "torch.compile"),
    **because("they are sparse.mm, whose first matrix is mat1", "torch.dsmm torch.hsmm torch.spmm"),
    **because("a form of its own", "profiler.ProfilerAction"),
    **because("a base of others, made otherwise", """
        nn.RNNBase nn.parameter.UninitializedBuffer nn.UninitializedBuffer
    """),
    **because("private options of its own machinery", """
        autograd.enable_grad autograd.gradcheck autograd.gradgradcheck linalg.matrix_exp linalg.diagonal linalg.vander
    """),
}  # fmt: skip


def found(key: str) -> Any:
    """What gradlab has under PyTorch's name, and whether it is a method; AttributeError where there is nothing."""
    path, _, method = key.partition(":")
    first, _, rest = path.partition(".")
    if first == "Tensor":
        getattr(gl.Tensor, rest)
        return inspect.getattr_static(gl.Tensor, rest)
    owner: Any = gl
    for part in (rest if first == "torch" else path).split("."):
        try:
            owner = getattr(owner, part)
        except AttributeError:
            owner = importlib.import_module(f"{owner.__name__}.{part}")
    return getattr(owner, method) if method else owner


def here() -> dict[str, Any]:
    result = {}
    for key in SIGNATURES:
        try:
            result[key] = found(key)
        except (AttributeError, ImportError):
            continue
    return result


HERE = here()


def refusals(key: str) -> list[str]:
    """The ways to call it that PyTorch knows and gradlab's signature does not take."""
    function = HERE[key]
    if isinstance(function, property) or not callable(function):
        return []
    signature = inspect.signature(function)
    itself = (None,) if key.startswith("Tensor.") or ":" in key else ()
    result = []
    for parameters in SIGNATURES[key]:
        known = [(mark, name) for mark, name in parameters if name not in ELSEWHERE and not name.startswith("_")]
        by_name = {name: 0 for mark, name in known if mark.startswith("*")}
        others = [name for mark, name in known if not mark.startswith("*")]
        several = any(mark == "..." for mark, _ in known)
        ways = [((*itself, *([0] * len(others))), by_name)]
        if not several:
            ways.append((itself, {**by_name, **dict.fromkeys(others, 0)}))
        for given, words in ways:
            try:
                signature.bind(*given, **words)
            except TypeError as error:
                result.append(f"{' '.join(mark + name for mark, name in parameters)}: {error}")
    return result


def test_the_table_is_walked():
    assert len(SIGNATURES) > 2000
    assert len(HERE) > 1600
    assert set(OTHERWISE) <= set(HERE)


@pytest.mark.parametrize("key", HERE)
def test_each_is_called_as_in_pytorch(key):
    wrong = refusals(key)
    if key in OTHERWISE:
        assert wrong, f"{key} is called as in PyTorch by now: take it out of OTHERWISE"
        return
    assert not wrong


@pytest.mark.torch
def test_the_table_is_that_of_the_installed_pytorch():
    pytest.importorskip("torch")
    assert pytorch_signatures.written(pytorch_signatures.table()) == pytorch_signatures.TABLE.read_text(encoding="utf-8")

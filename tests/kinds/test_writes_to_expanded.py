"""Writes into parts of expanded tensors: all that counts is whether the written elements are several in one place, as for PyTorch."""

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import CALLS

IN_PLACE = [call for call in CALLS if call.name.startswith("Tensor.") and "in_place" in call.marks]
OTHER_MEMORY = {"Tensor.set_", "Tensor.resize_", "Tensor.resize_as_", "Tensor.requires_grad_", "Tensor.detach_", "Tensor.rename_"}
# Those that may fill repeated elements with one value:
ONE_VALUE = {"Tensor." + name for name in ("fill_", "zero_", "masked_fill_", "index_fill_", "__setitem__", "fill_diagonal_")}
SHAPES = {"t_", "squeeze_", "unsqueeze_", "transpose_", "swapaxes_", "swapdims_", "as_strided_"}  # write nothing
PARTS = {
    "select": lambda base: base.expand(3, *base.shape)[1],
    "slice": lambda base: base.expand(3, *base.shape)[1:2].squeeze(0),
    "strided": lambda base: base.as_strided((2, *base.shape), (0, *base.stride()))[0],
    "transposed": lambda base: base.unsqueeze(0).expand(2, *base.shape).transpose(0, -1).transpose(0, -1)[-1],
}


def held(call, part):
    """The base after the call on a part of what it was expanded to; None where the call refuses, and the tensor the call was on."""
    args, options = call.tensors()
    base = args[0]
    target = base if part is None else part(base)
    gl.manual_seed(1)
    try:
        call.function(target, *args[1:], **options)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return None, error
    return base, target


@pytest.mark.parametrize("part", PARTS)
def test_each_method_writes_to_a_part(part):
    wrong, tried = [], 0
    for call in IN_PLACE:
        if call.name in OTHER_MEMORY or call.name.removeprefix("Tensor.") in SHAPES:
            continue
        (plain, _), (found, target) = held(call, None), held(call, PARTS[part])
        if plain is None:
            continue
        tried += 1
        if found is None or not np.array_equal(plain.numpy(), found.numpy(), equal_nan=True):
            wrong.append((call, str(target)[:80]))
        elif found.numel() and not np.array_equal(target.numpy(), found.numpy(), equal_nan=True):
            wrong.append((call, "the part holds other numbers"))
    assert tried > 150
    assert not wrong


def test_each_method_refuses_repeated_elements():
    wrong, tried = [], 0
    for call in IN_PLACE:
        bare = call.name.removeprefix("Tensor.")
        args, options = call.tensors()
        if call.name in OTHER_MEMORY | ONE_VALUE or bare in SHAPES or not args[0].dim() or args[0].shape[0] < 2:
            continue
        for x in (args[0][:1].clone().expand(args[0].shape), args[0].as_strided(args[0].shape, [0] * args[0].dim())):
            tried += 1
            before = x.clone()
            try:
                call.function(x, *args[1:], **options)
                wrong.append((call, "wrote"))
            except (RuntimeError, NotImplementedError, ValueError, IndexError, TypeError):
                assert np.array_equal(before.numpy(), x.numpy(), equal_nan=True), call
    assert tried > 200
    assert not wrong, wrong


def test_one_value_goes_to_all_repeated_elements():
    base, mask = gl.zeros(3, 1), gl.tensor([[False, True], [True, False], [False, False]])
    wide = base.expand(3, 2)
    assert wide.fill_(2) is wide and base.tolist() == [[2], [2], [2]]
    wide.masked_fill_(mask, 5.0)
    assert base.tolist() == [[5], [5], [2]]
    wide.index_fill_(0, gl.tensor([2]), 7)
    assert base.tolist() == [[5], [5], [7]]
    wide[0] = 1
    wide[wide == 7] = gl.tensor([3.0])
    wide[gl.tensor([1])] = 4
    assert base.tolist() == [[1], [4], [3]]
    with pytest.raises(RuntimeError, match="several of its elements are one memory location"):
        wide[0] = gl.tensor([1.0, 2.0])
    assert wide.zero_().tolist() == [[0, 0]] * 3 and not base.any()


def test_shapes_change_without_a_write():
    turns = ("t_", (), (2, 3)), ("transpose_", (0, 1), (2, 3)), ("unsqueeze_", (0,), (1, 3, 2)), ("squeeze_", (), (3, 2))
    for name, arguments, shape in turns:
        wide = gl.arange(2.0).expand(3, 2)
        assert getattr(wide, name)(*arguments).shape == shape and wide.sum() == 3
    assert gl.zeros(2).expand(3, 2).set_(gl.ones(1)).tolist() == [1]


def test_read_only_memory_stays_so():
    x = gl.zeros(3)
    x._array.flags.writeable = False
    for part in (x, x[1:], x.expand(2, 3)[0], x.expand(2, 3)):
        with pytest.raises(RuntimeError, match="cannot be written in place"):
            part.add_(1)


def program(base, scale):
    """Parts of an expanded tensor and of an expanded part are written and read."""
    wide = base.t().unsqueeze(1).expand(3, 4, 2)
    part = wide[:, 2, :1]
    part.copy_(part.clone() * scale)
    narrow = wide[:, 1, 0]
    wide[2, 3] = scale.sum() * wide[0, 0].clone()
    return (wide * gl.arange(24.0).reshape(3, 4, 2)).sum() + (base * base).sum() + (part * 3).sum() + narrow.sum() * 2


def by_hand(base, scale):
    first = base[0] * scale[:, 0]
    base = gl.stack([first, base[1]])
    base = gl.stack([base[:, 0], base[:, 1], scale.sum() * base[:, 0]], 1)
    wide = base.t().unsqueeze(1).expand(3, 4, 2)
    return (wide * gl.arange(24.0).reshape(3, 4, 2)).sum() + (base * base).sum() + (base[0] * 3).sum() + base[0].sum() * 2


def results(function, device="cpu"):
    leaf = gl.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device, requires_grad=True)
    scale = gl.tensor([[0.5], [2.0], [-1.0]], device=device, requires_grad=True)
    loss = function(leaf * 1, scale)
    loss.backward()
    return loss.tolist(), leaf.grad.tolist(), scale.grad.tolist()


def test_gradients():
    assert results(program) == results(by_hand) == results(gl.compile(program))


def test_gpu(cuda):
    wide = gl.zeros(3, device="cuda").expand(2, 3)
    wide[1].add_(1)
    assert wide.tolist() == [[1, 1, 1]] * 2 and wide.fill_(2).tolist() == [[2, 2, 2]] * 2
    with pytest.raises(RuntimeError, match="cannot be written in place"):
        wide.add_(1)
    own = lambda base, scale: program(base.cpu(), scale.cpu()).to("cuda")
    assert results(own, "cuda") == results(program)


@pytest.mark.parametrize("view", [False, True])
def test_compiled_writes_reach_what_was_expanded_before(view):
    own = gl.compile(lambda x, y: x.mul_(y) * 1)
    base, twice = gl.arange(3.0), gl.full((3,), 2.0)
    for i in range(3):
        part = base.expand(4, 3)[i] if view else base
        own(part, twice)
        assert base.tolist() == [0, 2 ** (i + 1), 2 ** (i + 2)]

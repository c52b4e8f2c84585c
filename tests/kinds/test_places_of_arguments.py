"""What stands in a wrong place is refused, by name: a number, a text or a list for a tensor; a tensor of several elements for a number; one
tensor for a list of them; a number that the dtype cannot hold.

The places are those that annotations tell: every parameter of every public function that has a sample call.
"""

import inspect
import warnings

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import CALLS, TORCH

# These take them: a number is as good as a tensor to `all`; PyTorch's code in Python computes with what it is given; `linear`, which is
# called more often than anything else, has no time to look at its bias.
TAKEN = {
    "all.input", "any.input", "linear.bias", "multi_head_attention_forward.out_proj_bias", "multilabel_soft_margin_loss.target",
    "multilabel_soft_margin_loss.weight", "gaussian_nll_loss.target", "add_layer_norm.input", "add_layer_norm.residual",
    "add_rms_norm.input", "add_rms_norm.residual", "gumbel_softmax.tau", "gumbel_softmax.eps", "local_response_norm.alpha",
    "local_response_norm.beta", "local_response_norm.k", "lp_pool1d.norm_type", "lp_pool2d.norm_type", "lp_pool3d.norm_type",
    "normalize.eps", "gaussian_nll_loss.eps", "triplet_margin_with_distance_loss.margin", "multi_head_attention_forward.q_proj_weight",
    "multi_head_attention_forward.k_proj_weight", "multi_head_attention_forward.v_proj_weight",
}  # fmt: skip
WRONG = {
    "Tensor": {"0.5": lambda: 0.5, "'a'": lambda: "a", "()": tuple, "object": object},
    "float": {"a matrix": lambda: gl.ones(3, 4), "a vector": lambda: gl.tensor([1 << 40]), "words": lambda: np.array(["a", "b"])},
    "Sequence[Tensor]": {"a matrix": lambda: gl.ones(3, 4)},
}


def places():
    """(call, its parameter, position or None, kind) of each public function's first sample call."""
    seen = set()
    for call in CALLS:
        if call.name in seen or call.function.__name__ == "<lambda>":
            continue
        seen.add(call.name)
        try:
            parameters = inspect.signature(call.function).parameters.values()
        except (TypeError, ValueError):  # one of NumPy's
            continue
        for place, p in enumerate(parameters):
            bare = call.name.rpartition(".")[2].strip("_")
            kind = str(p.annotation).removesuffix(" | None")
            if kind in WRONG and p.name != "self" and p.kind is not p.VAR_POSITIONAL and f"{bare}.{p.name}" not in TAKEN:
                yield call, p.name, place if p.kind is not p.KEYWORD_ONLY else 1 << 30, kind


PLACES = list(places())


def given(call, what, place, value, tensors):
    args, options = tensors
    if place < len(args):
        return (*args[:place], value, *args[place + 1 :]), options
    return args, {**options, what: value}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_nothing_of_the_kind_is_refused(kind):
    wrong = []
    for call, what, place, own in PLACES:
        for word, value in WRONG[kind].items() if own == kind else ():
            args, options = given(call, what, place, value(), call.tensors())
            try:
                call.function(*args, **options)
                wrong.append((call.name, what, word))
            except (TypeError, ValueError, RuntimeError, NotImplementedError, IndexError):
                pass
    assert not wrong, wrong


# Where a number stands beside a tensor (`where`, `masked_fill`, `x[i] = n`) it becomes what a result would: an infinity.
FILLING = {
    "full": lambda x, v: gl.full((2,), v, dtype=x.dtype),
    "full_like": gl.full_like,
    "new_full": lambda x, v: x.new_full((2,), v),
    "fill_": lambda x, v: x.fill_(v),
    "scatter": lambda x, v: x.scatter(0, gl.zeros(1, 1, dtype=gl.int64), v),
    "constant_": gl.nn.init.constant_,
    "pad": lambda x, v: gl.nn.functional.pad(x, (1, 1), value=v),
}
MOST = {gl.float16: 65504.0, gl.float32: 3.4028234663852886e38, gl.bfloat16: 3.3895313892515355e38}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", MOST, ids=str)
@pytest.mark.parametrize("name", FILLING)
def test_a_number_that_the_dtype_cannot_hold_fills_nothing(name, dtype):
    """Finite numbers do not become infinities, nor does NumPy warn; what the dtype holds, and infinities themselves, are written."""
    for value in (2 * MOST[dtype], -2 * MOST[dtype], 1e300):
        x = gl.ones(3, 3, dtype=dtype)
        with pytest.raises(RuntimeError, match=f"{name.split()[0]}: .* does not fit into {str(dtype).rpartition('.')[2]}"):
            FILLING[name](x, value)
        assert (x == 1).all()
    for value in (MOST[dtype], -MOST[dtype], float("inf"), float("-inf")):
        made = FILLING[name](x := gl.ones(3, 3, dtype=dtype), value)
        assert ((made if isinstance(made, gl.Tensor) else x).double() == value).any()
    FILLING[name](gl.ones(3, 3, dtype=gl.float64), 1e300)


@pytest.mark.parametrize("dtype", [gl.int64, gl.int32, gl.uint8], ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "floor_divide", "remainder", "bitwise_xor", "bitwise_or", "eq", "lt", "fmod"])
def test_integers_beyond_64_bits_are_refused(name, dtype):
    """They would be cut to some of their bits. Smaller ones wrap around in the tensor's type, as in PyTorch."""
    x = gl.ones(3, dtype=dtype)
    for value in (1 << 64, -(1 << 63) - 1, 10**30):
        with pytest.raises(OverflowError, match="too large for 64 bits"):
            getattr(gl, name)(x, value)
    getattr(gl, name)(x, (1 << 63) - 1)


@pytest.mark.torch
def test_pytorch_takes_no_more():
    """What is refused here PyTorch refuses, too."""
    torch, wrong = TORCH, []
    others = {"a matrix": torch.ones(3, 4), "a vector": torch.tensor([1 << 40]), "0.5": 0.5, "'a'": "a", "()": (), "object": object}
    unused = {"embedding.norm_type", "embedding_bag.norm_type", "std.correction", "var.correction", "iadd.alpha", "isub.alpha"}
    for call, what, place, kind in PLACES:
        if call.reference is None or f"{call.name.rpartition('.')[2].strip('_')}.{what}" in unused:
            continue
        for word in WRONG[kind].keys() & others.keys():
            args, options = given(call, what, place, others[word], call.reference_tensors(torch.float32))
            try:
                call.reference(*args, **options)
                wrong.append((call.name, what, word))
            except Exception:  # whatever it says
                pass
    assert not wrong, wrong


def registers():
    """(name, a call that registers something) of all that registers hooks."""
    layer, optimizer = gl.nn.Linear(2, 2), gl.optim.SGD([gl.ones(1, requires_grad=True)], 0.1)
    leaf = gl.ones(2, requires_grad=True)
    module = gl.nn.modules.module
    owners = {"Module": layer, "Optimizer": optimizer, "Tensor": leaf, "Node": (leaf * 2).grad_fn, "module": module}
    for name, owner in owners.items():
        for word in dir(owner):
            if word.startswith("register") and word.endswith("hook"):
                yield f"{name}.{word}", getattr(owner, word)


@pytest.mark.parametrize(("name", "register"), [pytest.param(n, f, id=n) for n, f in registers()])
def test_a_hook_is_a_function(name, register):
    """What cannot be called is refused when it is registered, not in the middle of a step."""
    for value in (1, "a", [len]):
        with pytest.raises(TypeError):
            register(value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        register(lambda *args, **options: None).remove()

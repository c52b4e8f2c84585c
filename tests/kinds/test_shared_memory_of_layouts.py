"""What shares memory with a tensor of an odd layout: one place, places of size 1, expanded, stepped, turned, cut out, empty.

Of each expression a row of marks, one for each of LAYOUTS: 1 where the result shares memory, 0 where it has its own, - where PyTorch
refuses. The table holds without PyTorch, and with it is held against it.
"""

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import TORCH
from kinds.test_shared_memory import listed

LAYOUTS = [
    "T.arange(12.).reshape(3, 4)",
    "T.arange(12.).reshape(3, 4).t()",
    "T.arange(4.).reshape(1, 4)",
    "T.arange(4.).reshape(4, 1)",
    "T.ones(1, 1, 1)",
    "T.tensor(2.)",
    "T.arange(6.)",
    "T.arange(4.).reshape(1, 4).expand(3, 4)",
    "T.arange(4.)[:1].expand(3, 4)",
    "T.arange(24.).reshape(3, 8)[:, ::2]",
    "T.arange(24.).reshape(6, 4)[::2]",
    "T.arange(24.).reshape(6, 4)[1:4]",
    "T.arange(24.).reshape(2, 3, 4)",
    "T.arange(24.).reshape(2, 3, 4).permute(2, 0, 1)",
    "T.arange(24.).reshape(4, 3, 2)[:, :1, :1]",
    "T.arange(48.).reshape(2, 2, 3, 4)",
    "T.arange(12).reshape(3, 4)",
    "T.ones(3, 4) > 0",
    "T.zeros(0, 3)",
    "T.arange(8.)[::2]",
]
SHARED = {
    "11111111111111111101": """
        x.to(x.dtype) ; x.to("cpu") ; x.to("cpu", x.dtype) ; x.to(T.zeros(1, dtype=x.dtype)) ; x.type(x.dtype) ; x.type_as(x) ; x.cpu() ;
        x.detach() ; x.data ; T.real(x) ; x.resolve_conj() ; x.conj() ; x.reshape(x.shape) ; x.reshape_as(x) ; x.reshape(1, *x.shape) ;
        x.reshape(*x.shape, 1) ; x.flatten(0, 0) ; x.view(x.shape) ; x.view_as(x) ; x.view(1, *x.shape) ; T.atleast_1d(x) ; T.atleast_2d(x)
        ; T.atleast_3d(x) ; T.atleast_2d([x, x])[0] ; x.movedim(0, -1) ; x.movedim(0, 0) ; x.moveaxis(-1, 0) ; x.swapaxes(0, -1) ;
        x.swapdims(0, 0) ; x.squeeze() ; x.squeeze(0) ; x.squeeze(-1) ; x.unsqueeze(0) ; x.transpose(0, 0) ; x.T ; x.expand(x.shape) ;
        x.expand_as(x) ; x.expand(1, *x.shape).reshape(x.shape) ; T.broadcast_to(x, x.shape) ; T.broadcast_tensors(x, x)[0] ;
        T.broadcast_tensors(x, T.ones(1))[0] ; x[...] ; x[None] ; x[()] ; T.as_tensor(x) ; T.as_tensor(x, dtype=x.dtype) ; T.asarray(x) ;
        T.einsum("...->...", x) ; F.dropout(x, 0.5, False) ; F.dropout(x, 0.0, True) ; F.alpha_dropout(x, 0.5, False) ; F.dropout2d(x, 0.5,
        False) ; T.nn.Identity()(x) ; T.nn.Dropout(0.5).eval()(x) ; T.nn.Dropout(0.0)(x) ; T.nn.Sequential()(x) ; T.nn.Parameter(x, False) ;
        T.nn.Buffer(x) ; T.Tensor(x) ; x.view(x.dtype) ; x.requires_grad_(False)
    """,
    "00000000000000000000": """
        x.to(T.float64) ; x.double() ; x.int() ; x.clone() ; x.expand(2, *x.shape).contiguous() ; x[True] ; x[x == x] ; T.asarray(x,
        copy=True) ; x.repeat(*[1] * max(x.ndim, 1)) ; x.tile((1,)) ; x.flip(()) ; T.stack([x]) ; x.sum(0) ; x.cumsum(0) ; x.clamp(min=-100)
        ; x.nan_to_num() ; T.where(T.tensor(True), x, x) ; x * 1
    """,
    "11111-11111111111101": """
        x.unflatten(-1, (1, -1)) ; x.permute(*range(x.ndim)) ; x.narrow(0, 0, x.shape[0]) ; x[:1].reshape(-1) ; x[:1].flatten() ;
        x.split(1)[0] ; x.chunk(1)[0] ; x.tensor_split(1)[0] ; x.hsplit(1)[0]
    """,
    "10111110110110111101": """
        x.reshape(-1) ; x.reshape(x.shape[::-1]) ; x.flatten() ; x[..., None].reshape(-1) ; T.nn.Flatten(0)(x)
    """,
    "00000-00000000000000": """
        x[:0] ; x.roll(0, 0) ; T.cat([x]) ; x.index_select(0, T.arange(x.shape[0])) ; F.pad(x, (0, 0))
    """,
    "----0-------0000----": """
        F.pixel_shuffle(x, 1) ; F.pixel_unshuffle(x, 1) ; F.channel_shuffle(x, 1) ; F.avg_pool2d(x, 1) ; F.max_pool2d(x, 1)
    """,
    "10111110000110011100": """
        x.contiguous() ; x.ravel() ; x.transpose(0, -1).transpose(0, -1).contiguous()
    """,
    "11111--111111111110-": """
        x.flatten(1) ; x.diagonal() ; T.nn.Flatten()(x)
    """,
    "11111-111111111111-1": """
        x[0] ; x[T.tensor(0)] ; x.unbind()[0]
    """,
    "00000--000000000000-": """
        x.rot90(0) ; x.tril(100) ; T.nn.ZeroPad2d(0)(x)
    """,
    "11111111111111110001": """
        x.float() ; x.type_as(T.zeros(1))
    """,
    "111111-111111111110-": """
        x.mT ; x.adjoint()
    """,
    "00000-000000000000-0": """
        x[T.tensor([0])] ; x.select_scatter(x[0], 0, 0)
    """,
    "------1------------1": """
        T.cartesian_prod(x) ; T.einsum("i->i", x)
    """,
    "1111---11111----110-": """
        T.einsum("ij->ji", x) ; T.einsum("ij->ij", x)
    """,
    "00000000000000000-00": """
        F.relu(x) ; x - 0
    """,
    "00000000000000000100": """
        x.bool()
    """,
    "11111111111111111-01": """
        T.positive(x)
    """,
    "10111--011011011110-": """
        x.flatten(0, 1)
    """,
    "10111--011011111110-": """
        x.flatten(-2)
    """,
    "01111110000000000000": """
        x.transpose(0, -1).contiguous()
    """,
    "01111110100000100001": """
        x.transpose(0, -1).reshape(-1)
    """,
    "1111-1111111----1101": """
        x.t()
    """,
    "00001100100000000000": """
        x.expand(2, *x.shape).reshape(-1)
    """,
    "11111-11111110111101": """
        x[..., :1].reshape(-1)
    """,
    "11111--111110010110-": """
        x[:, :1].reshape(-1)
    """,
    "0000--000000----0000": """
        x.diag()
    """,
    "111111111111111111-1": """
        x.unfold(0, 1, 1)
    """,
    "101111101101101111-1": """
        x.unfold(0, 1, 1).reshape(-1)
    """,
    "0000-0000000----0000": """
        T.block_diag(x)
    """,
    "-----11------------1": """
        T.meshgrid(x, indexing="ij")[0]
    """,
    "1111---11111----11--": """
        T.einsum("ii->i", x[:1, :1])
    """,
    "11111011111111111101": """
        x.sum_to_size(x.shape)
    """,
    "000000000000000000-0": """
        x.amax(0)
    """,
    "00000--00000--0-00--": """
        T.matrix_power(x[:1, :1], 1)
    """,
}
EXPRESSIONS = {text: marks for marks, some in SHARED.items() for text in listed(some)}


def marks(T, text, share):
    found = ""
    for layout in LAYOUTS:
        names = {"T": T, "F": T.nn.functional}
        x = names["x"] = eval(layout, names)
        try:
            result = eval(text, names)
        except (RuntimeError, IndexError, ValueError, TypeError):
            found += "-"
        else:
            found += "01"[bool(x.numel() and result.numel() and share(x, result))]
    return found


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_what_shares_memory(text):
    found = marks(gl, text, lambda x, y: np.shares_memory(x.detach().numpy(), y.detach().numpy()))
    assert all("-" in both or both[0] == both[1] for both in zip(found, EXPRESSIONS[text], strict=True)), found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_the_table(text):
    if TORCH is None:
        pytest.skip("no PyTorch")
    assert marks(TORCH, text, lambda x, y: x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()) == EXPRESSIONS[text]

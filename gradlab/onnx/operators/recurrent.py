"""RNN, GRU and LSTM: all directions, activations, layouts, sequences of different lengths, peepholes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.autograd.mode import current
from gradlab.nn import functional as F
from gradlab.nn.modules.steps import gru_step, keep, lstm_step, rnn_step
from gradlab.onnx.importing import Node, given, imports

Step = Callable[[Any, Any], Any]
UNROLLED = 64  # steps that a traced program has one after the other
_ACTIVATIONS: dict[str, Callable[[Any, float, float], Any]] = {
    "relu": lambda x, a, b: F.relu(x),
    "tanh": lambda x, a, b: gl.tanh(x),
    "sigmoid": lambda x, a, b: gl.sigmoid(x),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: F.leaky_relu(x, a),
    "thresholdedrelu": lambda x, a, b: gl.where(x >= a, x, 0),
    "scaledtanh": lambda x, a, b: a * gl.tanh(b * x),
    "hardsigmoid": lambda x, a, b: gl.clamp(a * x + b, 0, 1),
    "elu": lambda x, a, b: F.elu(x, a),
    "softsign": lambda x, a, b: F.softsign(x),
    "softplus": lambda x, a, b: F.softplus(x),
}
_DEFAULTS = {
    "affine": (1.0, 0.0), "leakyrelu": (0.01, 0.0), "thresholdedrelu": (1.0, 0.0), "scaledtanh": (1.0, 1.0), "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, 0.0),
}  # fmt: skip


def _activations(node: Node, directions: int, usual: list[str]) -> list[list[Callable[[Any], Any]]]:
    """For each direction its activations."""
    names = [n.lower() for n in node.get("activations") or usual * directions]
    alphas, betas = list(node.get("activation_alpha", [])), list(node.get("activation_beta", []))
    made: list[Any] = []
    for name in names:
        if name not in _ACTIVATIONS:
            raise node.refuse(f"the activation {name} is not known")
        a, b = _DEFAULTS.get(name, (0.0, 0.0))
        if name in _DEFAULTS:
            a = alphas.pop(0) if alphas else a
            b = betas.pop(0) if betas and name in ("affine", "scaledtanh", "hardsigmoid") else b
        made.append(lambda x, f=_ACTIVATIONS[name], a=a, b=b: f(x, a, b))
    each = len(usual)
    return [made[i * each : (i + 1) * each] for i in range(directions)]


def _clipped(node: Node, x: Any) -> Any:
    limit = node.get("clip")
    return x if limit is None else gl.clamp(x, -limit, limit)


def _run(x: Any, lengths: Any, states: list[Any], step: Step, backwards: bool) -> tuple[Any, list[Any]]:
    """Over the steps of x [time, batch, …]; entries that are over keep their state and give zeros."""
    time = x.shape[0]
    if lengths is None and current().tracer is not None and time > UNROLLED:  # the body is traced, compiled and written once

        def turn(states: Any, xt: Any) -> tuple[Any, Any]:
            new = tuple(step(xt, states))
            return new, new[0]

        last, y = gl.scan(turn, tuple(states), x, reverse=backwards)
        return y, list(last)
    outputs: list[Any] = [None] * time
    for i in range(time):
        t = time - 1 - i if backwards else i
        new = list(step(x[t], tuple(states)))
        if lengths is not None:
            going = gl.tensor((t < lengths)[:, None], device=x.device) if isinstance(lengths, np.ndarray) else (lengths > t).unsqueeze(1)
            states = [gl.where(going, n, old) for n, old in zip(new, states, strict=True)]
            outputs[t] = gl.where(going, new[0], 0)
        else:
            states = new
            outputs[t] = new[0]
    return gl.stack(outputs), states


def usual(node: Node) -> bool:
    """Whether a node computes what this library's layers do (`reordered` has its weights' gates in their order then)."""
    directions = 2 if node.get("direction", "forward") == "bidirectional" else 1
    expected = USUAL[node.kind] * directions
    names = [n.lower() for n in node.get("activations", expected)]
    fits = names == expected or (node.kind == "RNN" and names in (["relu"] * directions, ["tanh"] * directions))
    plain = not node.get("clip") and not node.get("input_forget", 0) and not (len(node.inputs) > 7 and node.inputs[7])
    return fits and plain and (node.kind != "GRU" or bool(node.get("linear_before_reset", 0)))


USUAL = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
# Which of the file's gates stands at each place here: i, o, f, c as i, f, g, o; z, r, h as r, z, n.
GATES = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}


def reordered(kind: str, array: Any, back: bool = False) -> Any:
    """A weight [directions, gates size, …] or bias [directions, 2 gates size] of a node with its gates in this library's order, or back."""
    order = GATES[kind]
    if back:
        order = tuple(order.index(i) for i in range(len(order)))
    halves = 2 if array.ndim == 2 else 1
    parts = array.reshape(array.shape[0], halves, len(order), -1, *array.shape[2:])
    return np.ascontiguousarray(parts[:, :, list(order)]).reshape(array.shape)


def _native(node: Node, d: int, w: Any, r: Any, b: Any) -> tuple[Any, Step]:
    """The weight and bias of the inputs' share of the gates, and the step, for a direction of a `usual` node with gates in this order."""
    wb, rb = _parts(b, d)
    joint = None if wb is None else wb if node.kind == "GRU" else wb + rb
    if node.kind == "LSTM":
        return (w[d], joint), lstm_step(r[d].t(), None, None)
    if node.kind == "GRU":
        return (w[d], joint), gru_step(r[d].t(), rb)
    return (w[d], joint), rnn_step(r[d].t(), None, node.get("activations", ["tanh"])[0].lower())


def _all(node: Node, x: Any, weights: tuple[Any, ...], lengths: Any, initial: list[Any], cell: Callable[[int, list[Any]], Step]) -> Any:
    """Both directions; results in the node's layout."""
    w, r, b, *_ = weights
    size = r.shape[-1]  # of r [directions, gates size, size]
    layout = node.get("layout", 0)
    x = x.transpose(0, 1) if layout else x
    direction = node.get("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    initial = [(s.transpose(0, 1) if layout else s) if given(s) else None for s in initial]
    functions = _activations(node, directions, USUAL[node.kind])
    writer = keep.get() if current().tracer is not None else None
    if writer is not None:
        y, *ends = writer(node, x, weights, node.tensor(lengths) if given(lengths) else None, initial)
    else:
        counts: Any = lengths if given(lengths) else None
        if isinstance(counts, gl.Tensor) and current().tracer is None:
            counts = counts.detach().cpu().numpy()
        if isinstance(counts, np.ndarray) and (counts == x.shape[0]).all():
            counts = None
        outputs, finals = [], []
        for d in range(directions):
            states = [gl.zeros((x.shape[1], size), dtype=x.dtype, device=x.device) if s is None else s[d] for s in initial]
            if "gates" in node.attributes:
                (weight, bias), step = _native(node, d, w, r, b)
                y, last = _run(F.linear(x, weight, bias), counts, states, step, direction == "reverse" or d == 1)
            else:
                y, last = _run(x, counts, states, cell(d, functions[d]), direction == "reverse" or d == 1)
            outputs.append(y)
            finals.append(last)
        y = gl.stack(outputs, 1)  # time, directions, batch, size
        ends = [gl.stack([f[i] for f in finals]) for i in range(len(initial))]
    if layout:
        y, ends = y.permute(2, 0, 1, 3), [e.transpose(0, 1) for e in ends]
    return (y, *ends)


def _parts(bias: Any, d: int) -> tuple[Any, Any]:
    return bias[d].chunk(2, 0) if given(bias) else (None, None)


@imports("RNN")
def rnn(node: Node, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    """f(x Wᵀ + h Rᵀ + b)."""

    def cell(d: int, functions: list[Callable[[Any], Any]]) -> Step:
        wb, rb = _parts(b, d)

        def step(xt: Any, states: list[Any]) -> list[Any]:
            return [functions[0](_clipped(node, F.linear(xt, w[d], wb) + F.linear(states[0], r[d], rb)))]

        return step

    return _all(node, x, (w, r, b), lengths, [h], cell)


@imports("GRU")
def gru(node: Node, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    """Gates in the order update, reset, hidden; `linear_before_reset` as in cuDNN and PyTorch."""

    def cell(d: int, functions: list[Callable[[Any], Any]]) -> Step:
        f, g = functions
        wb, rb = _parts(b, d)
        size = r.shape[-1]

        def step(xt: Any, states: list[Any]) -> list[Any]:
            (state,) = states
            xz, xr, xh = F.linear(xt, w[d], wb).chunk(3, -1)
            if node.get("linear_before_reset", 0):
                hz, hr, hh = F.linear(state, r[d], rb).chunk(3, -1)
                update, reset = f(_clipped(node, xz + hz)), f(_clipped(node, xr + hr))
                hidden = g(_clipped(node, xh + reset * hh))
            else:
                hz, hr = F.linear(state, r[d][: 2 * size], None if rb is None else rb[: 2 * size]).chunk(2, -1)
                update, reset = f(_clipped(node, xz + hz)), f(_clipped(node, xr + hr))
                hidden = g(_clipped(node, xh + F.linear(reset * state, r[d][2 * size :], None if rb is None else rb[2 * size :])))
            return [(1 - update) * hidden + update * state]

        return step

    return _all(node, x, (w, r, b), lengths, [h], cell)


def _lstm_step(node: Node, gates: Any, memory: Any, functions: list[Callable[[Any], Any]], peepholes: Any) -> list[Any]:
    """The next state and memory, of the gates' sums in ONNX's order (i, o, f, c)."""
    f, g, last = functions
    i, o, forget, new = gates.chunk(4, -1)
    pi, po, pf = (None, None, None) if peepholes is None else peepholes.chunk(3, 0)
    if pi is not None:
        i, forget = i + pi * memory, forget + pf * memory
    i = f(_clipped(node, i))
    forget = 1 - i if node.get("input_forget", 0) else f(_clipped(node, forget))
    memory = forget * memory + i * g(_clipped(node, new))
    o = f(_clipped(node, o if po is None else o + po * memory))
    return [o * last(memory), memory]


@imports("LSTM")
def lstm(
    node: Node, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None, peepholes: Any = None
) -> Any:
    """Gates in the order input, output, forget, cell."""

    def cell(d: int, functions: list[Callable[[Any], Any]]) -> Step:
        wb, rb = _parts(b, d)
        looking = peepholes[d] if given(peepholes) else None

        def step(xt: Any, states: list[Any]) -> list[Any]:
            state, memory = states
            return _lstm_step(node, F.linear(xt, w[d], wb) + F.linear(state, r[d], rb), memory, functions, looking)

        return step

    return _all(node, x, (w, r, b, peepholes), lengths, [h, c], cell)


def quantized_lstm(
    node: Node, x: Any, w: tuple[Any, Any, Any], r: tuple[Any, Any, Any], b: Any, lengths: Any, h: Any, c: Any, peepholes: Any, product: Any
) -> Any:
    """An LSTM whose weights are whole numbers with scales and zero points; `product(x, weight, scale, zero)` gives the gates' shares, of
    the inputs for all steps at once."""

    def part(weight: tuple[Any, Any, Any], d: int) -> tuple[Any, Any, Any]:
        array, scale, zero = weight
        return array[d], scale[d], None if zero is None or not given(zero) else zero[d]

    def cell(d: int, functions: list[Callable[[Any], Any]]) -> Step:
        wb, rb = _parts(b, d)
        bias = None if wb is None else wb + rb
        looking = peepholes[d] if given(peepholes) else None
        back, first = part(r, d), d * shares.shape[-1] // directions

        def step(xt: Any, states: list[Any]) -> list[Any]:
            state, memory = states
            total = xt[..., first : first + shares.shape[-1] // directions] + product(state, *back)
            return _lstm_step(node, total if bias is None else total + bias, memory, functions, looking)

        return step

    directions = w[0].shape[0]
    shares = gl.cat([product(x.reshape(-1, x.shape[-1]), *part(w, d)).reshape(*x.shape[:-1], -1) for d in range(directions)], -1)
    token = keep.set(None)  # ONNX has no such layer: its steps are written
    try:
        return _all(node, shares, (w[0], r[0].transpose(1, 2), b), lengths, [h, c], cell)
    finally:
        keep.reset(token)


# ---------------------------------------------------------------- recurrences of language models


@imports("CausalConvWithState")
def causal_conv(node: Node, x: Any, weight: Any, bias: Any = None, past: Any = None) -> Any:
    """Each channel over the positions up to its own; the last of them are handed on."""
    reach = weight.shape[-1] - 1
    before = past if given(past) else gl.zeros((*x.shape[:2], reach), dtype=x.dtype, device=x.device)
    wide = gl.cat([before, x], -1)
    y = F.conv1d(wide, weight, bias if given(bias) else None, groups=x.shape[1])
    return (F.silu(y) if node.get("activation", "none") in ("silu", "swish") else y), wide.narrow(-1, wide.shape[-1] - reach, reach)


@imports("LinearAttention")
def linear_attention(node: Node, q: Any, k: Any, v: Any, past: Any = None, decay: Any = None, beta: Any = None) -> Any:
    """A matrix for each head that forgets, and learns key and value at each step; queries read it."""
    heads, shared = node.get("q_num_heads"), node.get("kv_num_heads")
    batch, time, _ = q.shape
    q, k, v = (t.reshape(batch, time, n, -1) for t, n in ((q, heads), (k, shared), (v, shared)))
    scale = node.get("scale", 0.0) or q.shape[-1] ** -0.5
    rule = node.get("update_rule", "gated_delta")
    kept = past if given(past) else gl.zeros((batch, shared, k.shape[-1], v.shape[-1]), dtype=v.dtype, device=v.device)
    share: Any = gl.exp(decay).reshape(batch, time, shared, -1, 1) if given(decay) else None
    rate: Any = beta.reshape(batch, time, -1, 1, 1) if given(beta) else None
    outputs = []
    for t in range(time):
        if "gated" in rule:
            kept = kept * share[:, t]
        key, value = k[:, t].unsqueeze(-1), v[:, t].unsqueeze(-2)
        if "delta" in rule:
            value = (value - (kept * key).sum(-2, keepdim=True)) * rate[:, t]
        kept = kept + key * value
        read_ = kept.repeat_interleave(heads // shared, 1) if heads != shared else kept
        outputs.append(((read_ * q[:, t].unsqueeze(-1)).sum(-2) * scale).reshape(batch, -1))
    return gl.stack(outputs, 1), kept

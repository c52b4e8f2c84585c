"""The seven steps of workloads.py in JAX: one jitted function of parameters, the optimizer's state and a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import workloads
from jax import lax


def linear(p, name, x):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def convolution(p, name, x, stride=1, padding=0):
    shape = ("NCHW", "OIHW", "NCHW")
    y = lax.conv_general_dilated(x, p[name + ".weight"], (stride, stride), [(padding, padding)] * 2, dimension_numbers=shape)
    return y + p[name + ".bias"][:, None, None] if name + ".bias" in p else y


def batch_norm(p, name, x, state):
    """In training: normalized by the batch; running statistics are kept up as they are in the other engines."""
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    n = x.size // x.shape[1]
    for key, value in (("mean", mean), ("var", variance * n / (n - 1))):
        state[f"{name}.{key}"] = 0.9 * state.get(f"{name}.{key}", 1.0 * (key == "var")) + 0.1 * value
    y = (x - mean[:, None, None]) * lax.rsqrt(variance + 1e-5)[:, None, None]
    return y * p[name + ".weight"][:, None, None] + p[name + ".bias"][:, None, None]


def layer_norm(p, name, x):
    y = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return y * p[name + ".weight"] + p[name + ".bias"]


def perceptron(p, x, act, state):
    for i in range(2):
        x = act(linear(p, f"l.{i}", x))
    return linear(p, "l.2", x)


def cnn(p, x, state):
    x = jax.nn.relu(convolution(p, "conv2", jax.nn.relu(convolution(p, "conv1", x))))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return linear(p, "fc2", jax.nn.relu(linear(p, "fc1", x.reshape(len(x), -1))))


def resnet(p, x, state):
    x = jax.nn.relu(batch_norm(p, "bn1", convolution(p, "conv1", x, 1, 1), state))
    for i in range(9):
        name, stride = f"blocks.{i}", 2 if i in (3, 6) else 1
        y = jax.nn.relu(batch_norm(p, name + ".bn1", convolution(p, name + ".conv1", x, stride, 1), state))
        y = batch_norm(p, name + ".bn2", convolution(p, name + ".conv2", y, 1, 1), state)
        if stride == 2:
            q = x.shape[1] // 2
            x = jnp.pad(x[:, :, ::2, ::2], ((0, 0), (q, q), (0, 0), (0, 0)))
        x = jax.nn.relu(x + y)
    return linear(p, "fc", x.mean((2, 3)))


def gpt(p, x, state):
    x = p["wte.weight"][x] + p["wpe.weight"]
    batch, length, width = x.shape
    seen = jnp.tril(jnp.ones((length, length), bool))
    for i in range(4):
        h = f"h.{i}"
        parts = jnp.split(linear(p, h + ".qkv", layer_norm(p, h + ".ln1", x)), 3, -1)
        q, k, v = (t.reshape(batch, length, 4, -1).transpose(0, 2, 1, 3) for t in parts)
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]).astype("f")
        y = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)) @ v
        x = x + linear(p, h + ".proj", y.transpose(0, 2, 1, 3).reshape(batch, length, width))
        x = x + linear(p, h + ".out", jax.nn.gelu(linear(p, h + ".fc", layer_norm(p, h + ".ln2", x)), approximate=True))
    return linear(p, "head", layer_norm(p, "lnf", x))


def lstm(p, x, state):
    tables = p["emb.weight"] @ p["lstm.weight_ih_l0"].T + p["lstm.bias_ih_l0"] + p["lstm.bias_hh_l0"]
    recurrent = p["lstm.weight_hh_l0"].T

    def cell(carried, projected):
        h, c = carried
        i, f, g, o = jnp.split(projected + h @ recurrent, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((len(x), 256), "f")
    _, out = lax.scan(cell, (zero, zero), tables[x.T])
    return linear(p, "fc", out.transpose(1, 0, 2))


FORWARD = {
    "mlp": lambda p, x, state: perceptron(p, x, jax.nn.relu, state),
    "mlp-adam": lambda p, x, state: perceptron(p, x, lambda h: jax.nn.gelu(h, approximate=True), state),
    "tiny": lambda p, x, state: perceptron(p, x, jnp.tanh, state),
    "cnn": cnn, "resnet": resnet, "gpt": gpt, "lstm": lstm,
}  # fmt: skip


def updated(name, p, g, state):
    """SGD, with momentum but for tiny, or Adam, with AdamW's decay for gpt and mlp-adam, by PyTorch's defaults."""
    if name == "tiny":
        return {k: p[k] - 0.01 * g[k] for k in p}, state
    if name in ("mlp", "resnet"):
        momentum = {k: 0.9 * state["momentum"][k] + g[k] for k in p}
        return {k: p[k] - 0.01 * momentum[k] for k in p}, {**state, "momentum": momentum}
    t = state["t"] + 1
    first = {k: 0.9 * state["first"][k] + 0.1 * g[k] for k in p}
    second = {k: 0.999 * state["second"][k] + 0.001 * g[k] ** 2 for k in p}
    decay = 1 - 1e-3 * 0.01 if name in ("mlp-adam", "gpt") else 1.0

    def one(k):
        root = jnp.sqrt(second[k]) / jnp.sqrt(1 - 0.999**t) + 1e-8
        return p[k] * decay - 1e-3 / (1 - 0.9**t) * first[k] / root

    return {k: one(k) for k in p}, {**state, "t": t, "first": first, "second": second}


def prepared(name, waits=True):
    """A step without arguments that gives the loss as a number. waits: until parameters are there, too."""
    import torch  # the names and shapes of the parameters are those of the network that PyTorch and gradlab build

    model = workloads.network(name, torch.nn, torch.nn.functional, torch.cat)
    values = workloads.weights({k: tuple(p.shape) for k, p in model.named_parameters()})
    x, y = map(jnp.asarray, workloads.data(name))

    def loss_of(p, running):
        out = FORWARD[name](p, x, running)  # which fills `running` anew
        if name == "tiny":
            return jnp.mean((out - y) ** 2), running
        logs = jax.nn.log_softmax(out.reshape(-1, out.shape[-1]))
        return -jnp.take_along_axis(logs, y.reshape(-1, 1), 1).mean(), running

    def step(p, state):
        running = dict(state["running"])
        (loss, running), g = jax.value_and_grad(loss_of, has_aux=True)(p, running)
        p, state = updated(name, p, g, {**state, "running": running})
        return p, state, loss

    step = jax.jit(step, donate_argnums=(0, 1))
    p = {k: jnp.asarray(v) for k, v in values.items()}
    zeros = lambda: {k: jnp.zeros_like(v) for k, v in p.items()}
    running = {}
    jax.eval_shape(lambda: FORWARD[name](p, x, running))
    running = {k: jnp.full(values[k.rsplit(".", 1)[0] + ".weight"].shape, 1.0 * k.endswith("var"), "f") for k in running}
    kept = [p, {"running": running, "t": jnp.zeros(()), "momentum": zeros(), "first": zeros(), "second": zeros()}]

    def run():
        *kept[:], loss = step(*kept)
        if waits:
            jax.block_until_ready(kept)
        return loss

    return run

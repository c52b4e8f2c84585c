"""The steps of tiny, mlp and mlp-adam in NumPy, forward and backward written by hand into kept arrays: what no engine at all costs."""

import numpy as np
import workloads

SIZES = {"tiny": (2, 16, 16, 1), "mlp": (784, 256, 256, 10), "mlp-adam": (784, 512, 512, 10)}
ROOT, CUBE = np.float32(np.sqrt(2 / np.pi)), np.float32(0.044715)


def relu(z):
    return np.maximum(z, 0), lambda g: g * (z > 0)


def tanh(z):
    a = np.tanh(z)
    return a, lambda g: g * (1 - a * a)


def gelu(z):
    t = np.tanh(ROOT * (z + CUBE * z * z * z))
    return 0.5 * z * (1 + t), lambda g: g * (0.5 * (1 + t) + 0.5 * z * (1 - t * t) * ROOT * (1 + 3 * CUBE * z * z))


def prepared(name):
    """A step without arguments that gives the loss; ValueError for a step that nobody writes by hand."""
    if name not in SIZES:
        raise ValueError(f"{name} is not written in NumPy by hand; those that are: {', '.join(SIZES)}")
    sizes, act = SIZES[name], {"tiny": tanh, "mlp": relu, "mlp-adam": gelu}[name]
    shapes = {f"l.{i}.{kind}": s for i in range(3) for kind, s in (("weight", (sizes[i + 1], sizes[i])), ("bias", (sizes[i + 1],)))}
    p = workloads.weights(shapes)
    x, y = workloads.data(name)
    rows, t = np.arange(len(x)), [0]
    first, second = ({k: np.zeros_like(v) for k, v in p.items()} for _ in range(2))

    def update(key, g):
        value = p[key]
        if name == "tiny":
            value -= np.float32(0.01) * g
        elif name == "mlp":
            first[key] *= np.float32(0.9)
            first[key] += g
            value -= np.float32(0.01) * first[key]
        else:
            value *= np.float32(1 - 1e-5)
            first[key] += np.float32(0.1) * (g - first[key])
            second[key] *= np.float32(0.999)
            second[key] += np.float32(0.001) * g * g
            root = np.sqrt(second[key]) / np.float32(np.sqrt(1 - 0.999 ** t[0])) + np.float32(1e-8)
            value -= np.float32(1e-3 / (1 - 0.9 ** t[0])) * first[key] / root

    def step():
        t[0] += 1
        inputs, slopes, h = [x], [], x
        for i in range(2):
            h, slope = act(h @ p[f"l.{i}.weight"].T + p[f"l.{i}.bias"])
            inputs.append(h)
            slopes.append(slope)
        out = h @ p["l.2.weight"].T + p["l.2.bias"]
        if name == "tiny":
            gap = out - y
            loss, g = (gap * gap).mean(), gap * np.float32(2 / gap.size)
        else:
            logs = out - out.max(1, keepdims=True)
            logs -= np.log(np.exp(logs).sum(1, keepdims=True))
            loss, g = -logs[rows, y].mean(), np.exp(logs)
            g[rows, y] -= 1
            g /= np.float32(len(x))
        for i in (2, 1, 0):
            of_weight, of_bias = g.T @ inputs[i], g.sum(0)
            if i:
                g = slopes[i - 1](g @ p[f"l.{i}.weight"])
            update(f"l.{i}.weight", of_weight)
            update(f"l.{i}.bias", of_bias)
        return loss

    return step

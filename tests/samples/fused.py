"""Samples of layers with what follows them: the plain references and the formulas of the activations."""

import math

import numpy as np

from samples.base import integers, normal, sample
from samples.conv import convolution, geometry

erf = np.vectorize(math.erf, otypes=[float])
FORMULAS = {
    "relu": lambda z: np.maximum(z, 0),
    "gelu": lambda z: z / 2 * (1 + erf(z / 2**0.5)),
    "gelu_tanh": lambda z: z / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + np.exp(-z)),
}


def linear(x, w, b):
    z = np.einsum("...n,mn->...m", x, w)
    return z if b is None else z + b


def linear_relu(x, w, b):
    return np.maximum(linear(x, w, b), 0)


def linear_gelu_tanh(x, w, b):
    z = linear(x, w, b)
    return FORMULAS["gelu_tanh"](z), z


def convolution_act(x, w, b, *, activation, **numbers):
    return FORMULAS[activation](convolution(x, w, b, **numbers))


def embedding_add(weight, positions, at, padding_idx):
    return weight[at] + positions[: at.shape[-1]]


TABLE, PLACES = normal(7, 4), normal(5, 4, seed=1)
def convolution_act_sums(x, w, b, *, activation, **numbers):
    z = convolution(x, w, b, **numbers)
    return FORMULAS[activation](z), z


LAYERS = [
    (normal(3, 4), normal(5, 4, seed=1), normal(5, seed=2)),
    (normal(2, 3, 6), normal(8, 6, seed=1), normal(8, seed=2)),
    (normal(4), normal(3, 4, seed=1), None),
    (normal(2, 3), normal(4, 3, seed=1), normal(1, seed=2)),
    (normal(0, 3), normal(4, 3, seed=1), normal(4, seed=2)),
    (normal(2, 0), normal(4, 0, seed=1), normal(4, seed=2)),
]
SAMPLES = {
    "embedding_add": [
        sample(TABLE, PLACES, integers(0, 7, 3, 5, seed=2), padding_idx=None, reference=embedding_add),
        sample(TABLE, PLACES, integers(0, 7, 2, 2, 3, seed=3), padding_idx=None, reference=embedding_add, note="positions left over"),
        sample(TABLE, PLACES, integers(0, 7, 4, seed=4), padding_idx=None, reference=embedding_add, note="one sequence"),
        sample(TABLE, PLACES, integers(0, 7, 3, 5, seed=2), padding_idx=2, reference=embedding_add, gradients=0),
        sample(TABLE, PLACES, integers(0, 7, 0, 5), padding_idx=None, reference=embedding_add),
        sample(normal(6, 7), normal(3, 7, seed=1), integers(0, 6, 4, 3, seed=5), padding_idx=None, reference=embedding_add),
    ],
    "linear_relu": [sample(*xs, reference=linear_relu) for xs in LAYERS],
    "linear_gelu_tanh": [sample(*xs, reference=linear_gelu_tanh) for xs in LAYERS],
    "convolution_act": [
        sample(normal(2, 3, 5, 4), normal(4, 3, 2, 3, seed=1), normal(4, seed=2), reference=convolution_act, activation=a,
               **geometry((1, 2), (1, 0), (1, 1), 1))
        for a in FORMULAS
    ] + [
        sample(normal(2, 4, 7), normal(6, 2, 3, seed=1), None, reference=convolution_act, activation="relu",
               **geometry((2,), (1,), (1,), 2)),
        sample(normal(1, 2, 3, 3, 4), normal(3, 2, 2, 2, 2, seed=1), normal(3, seed=2), reference=convolution_act, activation="silu",
               **geometry((1, 1, 1), (0, 1, 0), (1, 1, 2), 1)),
        sample(normal(1, 20, 4, 4), normal(20, 20, 3, 3, seed=1, scale=0.1), normal(20, seed=2), reference=convolution_act,
               activation="gelu", **geometry((1, 1), (1, 1), (1, 1), 1)),
        sample(normal(0, 2, 4), normal(3, 2, 2, seed=1), normal(3, seed=2), reference=convolution_act, activation="relu",
               **geometry((1,), (0,), (1,), 1)),
    ],
    "convolution_act_sums": [
        sample(normal(2, 3, 5, 4), normal(4, 3, 2, 3, seed=1), normal(4, seed=2) if a == "silu" else None, reference=convolution_act_sums,
               activation=a, **geometry((1, 2), (1, 0), (1, 1), 1))
        for a in FORMULAS
    ] + [
        sample(normal(2, 4, 7, 6), normal(6, 2, 2, 3, seed=1), normal(6, seed=2), reference=convolution_act_sums, activation="relu",
               **geometry((2, 1), (0, 2), (3, 2), 2)),
        sample(normal(0, 4, 5), normal(6, 2, 2, seed=1), normal(6, seed=2), reference=convolution_act_sums, activation="gelu",
               **geometry((1,), (0,), (1,), 2)),
    ],
}  # fmt: skip

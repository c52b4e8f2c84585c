"""A program whose numbers are to be the same bits whoever runs it: `python tests/determinism.py [--device cuda] [--compile] [--parts A,B]`.

It prints the SHA-256 of what each part leaves: losses, weights and gradients of a few steps of training.
"""

from __future__ import annotations

import argparse
import hashlib
import json

import numpy as np

import gradlab as gl
from gradlab import nn
from gradlab.nn import functional as F


class Words(nn.Module):
    """Tokens through an embedding, an LSTM and attention."""

    def __init__(self):
        super().__init__()
        self.table, self.lstm = nn.Embedding(11, 8), nn.LSTM(8, 8, batch_first=True)
        self.attention, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, tokens):
        x, _ = self.lstm(self.table(tokens))
        return self.last(self.attention(x, x, x, need_weights=False)[0].mean(1))


def perceptron():
    layers = nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(0.2), nn.Linear(64, 3)
    return nn.Sequential(*layers), lambda: gl.randn(32, 20)


def images():
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 3)
    return nn.Sequential(*layers), lambda: gl.randn(16, 3, 16, 16)


def words():
    return Words(), lambda: gl.randint(0, 11, (16, 7))


def large():
    """Rows that several threads share."""
    return nn.Sequential(nn.Linear(300, 700), nn.ReLU(), nn.Linear(700, 3)), lambda: gl.randn(600, 300)


PARTS = {"perceptron": perceptron, "images": images, "words": words, "large": large}


def bits(values):
    digest = hashlib.sha256()
    for value in values:
        digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()[:16]


def trained(part, device, compiled, steps=4):
    gl.manual_seed(7)
    model, draw = PARTS[part]()
    xs, ys = [draw() for _ in range(steps)], [gl.randint(0, 3, (len(draw()),)) for _ in range(steps)]
    model = model.to(device)
    optimizer = gl.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = gl.compile(step) if compiled else step
    losses = [run(x.to(device), y.to(device)) for x, y in zip(xs, ys, strict=True)]
    return bits([*losses, *model.state_dict().values(), *(p.grad for p in model.parameters())])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--parts", default=",".join(PARTS))
    given = parser.parse_args()
    print(json.dumps({part: trained(part, given.device, given.compile) for part in given.parts.split(",")}))

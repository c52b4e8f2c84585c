"""What the processes of test_multiprocessing.py run. Processes that are spawned import this file."""

from __future__ import annotations

import os
import signal

import gradlab as gl
from gradlab import nn


def problem(seed):
    """Data of a line that a linear layer can learn."""
    gl.manual_seed(seed)
    x = gl.randn(64, 4)
    return x, x.sum(1, keepdim=True)


def train(seed, model, steps, lr=0.05):
    optimizer = gl.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
    x, y = problem(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def step_of_all(index, model, optimizer):
    model(gl.ones(2, 4)).sum().backward()
    optimizer.step()


def add_one(tensor):
    tensor.add_(1)


def answer(questions, answers):
    """Write into what comes, and send it back with something of one's own. The process ends at once."""
    tensor = questions.get()
    tensor.mul_(2)
    answers.put({"same": tensor, "own": gl.arange(4, dtype=gl.float64), "layer": nn.Linear(2, 2), "view": tensor[1:]})


def failing(index, where):
    if index == 1:
        if where == "raise":
            raise ValueError("the second process has had enough")
        os.kill(os.getpid(), signal.SIGKILL) if where == "kill" else os._exit(7)
    signal.pause()


def double(tensor):
    return tensor * 2

"""`gl.compile(fullgraph=False)`: what cannot be traced runs eagerly, as in PyTorch's programs, and leaves what it would leave."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn

READS = {
    "item": lambda y: y.sum().item(),
    "if": lambda y: 1.0 if y.sum() > 0 else 2.0,
    "float": lambda y: float(y.max()),
    "numpy": lambda y: float(np.sin(y.detach().numpy()).sum()),
    "tolist": lambda y: y.detach().tolist()[0][0],
    "nonzero": lambda y: float(len(y.nonzero())),
    "mask": lambda y: y[y > 0].sum(),
    "unique": lambda y: float(gl.unique(y.detach().round()).numel()),
    "repr": lambda y: float(len(repr(y.detach().round()))),
    "a size that depends on values": lambda y: positive(y.detach()).sum(),
}


@gl.library.custom_op("fullgraph::positive", mutates_args=())
def positive(x: gl.Tensor) -> gl.Tensor:
    return gl.tensor(x.numpy()[x.numpy() > 0])


positive.register_fake(lambda x: x.new_empty(gl.library.get_ctx().new_dynamic_size()))


class Model(nn.Module):
    def __init__(self, read):
        super().__init__()
        self.layer, self.dropout, self.read = nn.Linear(3, 2), nn.Dropout(0.5), read
        self.norm = nn.BatchNorm1d(2)
        self.calls, self.seen, self.by_number = 0, [], {}

    def forward(self, x):
        self.calls += 1
        y = self.norm(self.layer(self.dropout(x)))
        self.by_number[self.calls] = y.shape
        found = self.read(y)
        self.seen.append(float(found))
        return y * found


def trained(read, compiled):
    gl.manual_seed(3)
    model = Model(read)
    step = gl.compile(model, fullgraph=False) if compiled else model
    optimizer = gl.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for i in range(4):
        optimizer.zero_grad()
        loss = step(gl.arange(12.0).reshape(4, 3) / (i + 3)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    state = [v.tolist() for v in model.state_dict().values()]
    return losses, state, model.calls, model.seen, list(model.by_number), gl.get_rng_state().tolist()


@pytest.mark.parametrize("read", READS)
def test_what_reads_values_runs_eagerly_and_leaves_the_same(read):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert trained(READS[read], True) == trained(READS[read], False)
    told = [str(w.message) for w in said if "such calls run eagerly; fullgraph=True makes an error of it" in str(w.message)]
    assert len(told) == 1 and "test_compile_fullgraph.py" in told[0]


def test_by_default_it_is_an_error():
    compiled = gl.compile(lambda x: x.sum().item())
    with pytest.raises(gl.graph.TraceError, match="read while tracing"):
        _ = [compiled(gl.ones(2)) for _ in range(2)]


def test_what_can_be_traced_is():
    compiled = gl.compile(lambda x: x * 2, fullgraph=False)
    assert [compiled(gl.tensor(float(i))).item() for i in range(3)] == [0, 2, 4] and len(compiled.programs) == 1


def test_programs_of_pytorch_have_its_default():
    program = """
import gradlab.as_torch
import torch, warnings
warnings.simplefilter("ignore")
functions = [torch.compile(lambda x: x * 2 if x.sum().item() > 0 else x), torch.compile(lambda x: x + int(x.sum()), dynamic=True)]
for f in functions:
    print([f(torch.full((2,), v)).tolist() for v in (1.0, -1.0, 1.0)])
module = torch.nn.ReLU()
module.register_forward_hook(lambda m, given, y: y * y.sum().item())
module.compile()
print([module(torch.ones(2)).tolist() for _ in range(3)])
strict = torch.compile(lambda x: x.sum().item(), fullgraph=True)
try:
    print([strict(torch.ones(2)) for _ in range(2)])
except Exception as error:
    print(type(error).__name__)
"""
    run = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    wanted = ["[[2.0, 2.0], [-1.0, -1.0], [2.0, 2.0]]", "[[3.0, 3.0], [-3.0, -3.0], [3.0, 3.0]]", str([[2.0, 2.0]] * 3), "TraceError"]
    assert run.stdout.splitlines() == wanted, run.stderr

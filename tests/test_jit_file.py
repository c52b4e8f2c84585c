"""`save` and `jit.load`: files that run without the model's code, on either device, and refusals that say what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from jit_files import programs, taken_apart, together

import gradlab as gl
from gradlab import nn
from gradlab.jit.portable import LoadError
from gradlab.jit.reader import from_bytes
from gradlab.jit.writer import to_bytes
from gradlab.library import custom_op

from repository import ROOT


@pytest.fixture(autouse=True)
def row_by_row(monkeypatch):
    monkeypatch.setenv("GRADLAB_COMPILE", "0")


@pytest.fixture(scope="module")
def made():
    return programs()


NAMES = ("mlp", "cnn", "lstm", "text", "flow", "loop", "picking", "shapes", "random", "slope")


def examples(program):
    rng = np.random.default_rng(0)
    sizes = [[int.__int__(s) if type(s) is int else 3 for s in v.spec.shape] for v in program.graph.inputs]
    return [gl.from_numpy(rng.integers(0, 2, s).astype(v.spec.dtype)) for s, v in zip(sizes, program.graph.inputs, strict=True)]


def flat(value):
    parts = value.values() if isinstance(value, dict) else value
    return [t for p in parts for t in flat(p)] if isinstance(value, (tuple, list, dict)) else [value]


def alike(a, b):
    for x, y in zip(flat(a), flat(b), strict=True):
        np.testing.assert_array_equal(x.detach().cpu().numpy(), y.detach().cpu().numpy())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_loaded_gives_the_same(made, name, tmp_path):
    program = made[name]
    program.save(tmp_path / "p.glp")
    loaded = gl.jit.load(tmp_path / "p.glp")
    loaded.save(tmp_path / "again.glp")
    assert (tmp_path / "p.glp").read_bytes() == (tmp_path / "again.glp").read_bytes()
    assert list(loaded.state_dict()) == list(program.state_dict())
    args = examples(program)
    results = []
    for run in (program, loaded):
        gl.manual_seed(1)
        results.append(run(*args))
    if name != "random":  # its other generator goes on where the first left it
        alike(*results)


def test_a_generator_and_buffers_go_on_in_the_file(tmp_path):
    generator = gl.Generator().manual_seed(5)
    m = nn.BatchNorm1d(2)
    p = gl.jit.trace(lambda x: m(x) + gl.rand(2, generator=generator), (gl.randn(3, 2),))
    p.save(tmp_path / "p.glp")
    q = gl.jit.load(tmp_path / "p.glp")
    x = gl.randn(3, 2)
    for _ in range(2):
        alike(p(x), q(x))
    assert m.num_batches_tracked.item() == 2 and q(x) is not None
    assert [b.tolist() for b in p.tensors()] != [b.tolist() for b in q.tensors()]


def test_gradients_of_what_is_loaded(made, tmp_path):
    p = made["cnn"]
    p.save(tmp_path / "p.glp")
    q = gl.jit.load(tmp_path / "p.glp")
    assert [n for n, t in q.named_parameters() if t.requires_grad] == [n for n, _ in p.named_parameters()]
    (x,) = examples(p)
    gradients = []
    for run in (p, q):
        gl.manual_seed(0)
        gradients.append(gl.autograd.grad((run(x) ** 2).sum(), list(run.parameters())))
    alike(*gradients)


def test_shared_tensors_and_names_that_are_not_saved(tmp_path):
    m = nn.Module()
    m.a, m.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    m.b.weight = m.a.weight
    m.register_buffer("table", gl.ones(2), persistent=False)
    m.unused = nn.Linear(1, 1)
    m.forward = lambda x: m.b(m.a(x)) + m.table
    gl.jit.trace(m, (gl.ones(2),)).save(tmp_path / "p.glp")
    q = gl.jit.load(tmp_path / "p.glp")
    assert list(q.state_dict()) == list(m.state_dict())
    assert q.get_parameter("a.weight") is q.get_parameter("b.weight")
    q.load_state_dict(m.state_dict())


SCRIPT = """
import sys
import numpy as np
import gradlab as gl
for at in sys.argv[1:]:
    program = gl.jit.load(at + ".glp")
    given = np.load(at + ".npz")
    args = [gl.from_numpy(given[k]) for k in sorted(given) if k.startswith("in")]
    want = [given[k] for k in sorted(given) if k.startswith("out")]
    for got, expected in zip(program(*args), want, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    print(program.extra_repr())
"""


class Own(nn.Module):
    """A class that the other process does not have."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        y = self.head(self.rnn(x)[0][:, -1])
        return (gl.cond(y.sum() > 0, lambda v: v * 2, lambda v: v - 1, (y,)),)


def test_no_code_of_the_model_is_needed(tmp_path):
    gl.manual_seed(0)
    cases = {"own": (Own(), gl.randn(2, 5, 3)), "own_again": (Own(), gl.randn(1, 2, 3))}
    for name, (m, x) in cases.items():
        gl.jit.trace(m, (x,)).save(tmp_path / f"{name}.glp")
        arrays = {f"out{i}": t.detach().numpy() for i, t in enumerate(m(x))}
        np.savez(tmp_path / f"{name}.npz", in0=x.numpy(), **arrays)
    command = [sys.executable, "-c", SCRIPT, *(str(tmp_path / n) for n in cases)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": "", "GRADLAB_COMPILE": "0"}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("original_name=Own") == 2


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("name", ["mlp", "lstm", "flow"])
def test_to_the_gpu_and_back(made, name, tmp_path):
    p = made[name]
    p.save(tmp_path / "p.glp")
    q = gl.jit.load(tmp_path / "p.glp", device="cuda")
    args = examples(p)
    there = q(*[a.to("cuda") for a in args])
    assert all(t.device.type == "cuda" for t in flat(there))
    for x, y in zip(flat(p(*args)), flat(there), strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.detach().cpu().numpy(), rtol=1e-4, atol=1e-5)
    moved = gl.jit.load(tmp_path / "p.glp").to("cuda")
    alike(moved(*[a.to("cuda") for a in args]), there)
    traced_there = gl.jit.trace(lambda x: gl.relu(x) + gl.zeros(3, device="cuda"), (gl.ones(3).to("cuda"),))
    traced_there.save(tmp_path / "q.glp")
    back = gl.jit.load(tmp_path / "q.glp", device="cpu")
    assert back(gl.tensor([-1.0, 2.0, 3.0])).tolist() == [0.0, 2.0, 3.0]
    q.save(tmp_path / "r.glp")
    alike(gl.jit.load(tmp_path / "r.glp", device="cpu")(*args), p(*args))


# ---------------------------------------------------------------- refusals


def edited(made, name, change):
    """The file of a program after `change(outline)`."""
    program = made[name]
    header, outline, data = taken_apart(to_bytes(program._plan, program.tensors()))
    change(outline)
    return together(header, outline, data)


def put(path, value):
    def change(outline):
        for key in path[:-1]:
            outline = outline[key]
        outline[path[-1]] = value

    return change


WRONG = {
    "format": (put(["format"], 2), "has version 2 of the format, of gradlab '0"),
    "row of a later gradlab": (put(["rows", "linear"], 7), "was written for version 7 of the row 'linear', newer"),
    "row that is not listed": (lambda o: o["rows"].pop("linear"), "call 0, 'linear': the row is not in the file's list"),
    "unknown row": (lambda o: (put(["calls", 0, 0], "explode")(o), put(["rows", "explode"], 1)(o)), "there is no such row"),
    "row of a dynamic size": (lambda o: (put(["calls", 0, 0], "nonzero")(o), put(["rows", "nonzero"], 1)(o)), "depends on values"),
    "value that is not there": (put(["calls", 0, 1, 0], "%99"), "the value %99 is used, and not defined before"),
    "cycle": (lambda o: put(["calls", 0, 1, 0], f"%{o['calls'][1][3][0][0]}")(o), "not defined before"),
    "value twice": (put(["calls", 1, 3, 0, 0], 1), "the value %1 is defined twice"),
    "shape that is not the rule's": (put(["calls", 0, 3, 0, 2], [3, 6]), "and the row's rule float32"),
    "dtype that is not the rule's": (put(["calls", 0, 3, 0, 1], "float64"), "and the row's rule float32"),
    "unknown dtype": (put(["inputs", 0, 1], "complex32"), "there is no dtype 'complex32'"),
    "terabytes": (put(["inputs", 0, 2], [1 << 40, 4]), "is larger than the limit"),
    "negative size": (put(["inputs", 0, 2], [-3, 4]), "is no size of a dimension"),
    "a parameter too many": (put(["calls", 0, 2], {"code": "x"}), "it has parameters"),
    "a parameter out of range": (put(["calls", 2, 2, "k"], 900), "call 2, 'layer_norm'"),
    "a parameter of another type": (put(["calls", 2, 2, "eps"], "small"), "its parameter eps is 'small'"),
    "inputs of two dtypes": (put(["inputs", 0, 1], "float64"), "its inputs have dtypes float32, float64"),
    "size that is not listed": (put(["sizes"], {}), "a size named 'batch' is not among"),
    "size that cannot be": (put(["inputs", 0, 2, 0], {"size": ["floordiv", "batch", 0]}), "cannot be computed"),
    "size that explodes": (put(["inputs", 0, 2, 0], {"size": ["pow", ["pow", "batch", 9], 9]}), "a power that is too large"),
    "tensor that is not there": (put(["state", 0, 1, 0], "ghost"), "the tensor 'ghost' of its state is not in the file"),
    "tensor that nobody mentions": (lambda o: o["state"].pop(), "that its program does not mention|used, and not defined"),
    "integers that require grad": (put(["result"], {"set": []}), "the structure {'set': \\[\\]} has no meaning"),
    "results": (put(["values"], []), "it has 1 results|has 0 results|structure has 1"),
    "write": (put(["updates"], [[4, 4]]), "which is no input and no state"),
    "deep": (put(["arguments"], json.loads('{"list": [' * 100 + '"tensor"' + "]}" * 100)), "nest too deeply"),
    "no object": (put(["calls"], 3), "its calls is 3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refusals_name_what_is_wrong(made, case):
    change, text = WRONG[case]
    with pytest.raises(LoadError, match=text) as caught:
        from_bytes(edited(made, "mlp", change))
    assert str(caught.value).startswith("load: the file: ") and isinstance(caught.value, ValueError)


def test_scans_and_switches_are_checked(made):
    scan = next(i for i, c in enumerate(made["flow"].graph.calls) if c.op.name == "scan")
    switch = next(i for i, c in enumerate(made["flow"].graph.calls) if c.op.name == "switch")
    for path, value, text in (
        (["calls", scan, 2, "length"], 1 << 40, "it runs 1099511627776 times"),
        (["calls", scan, 2, "length"], 5, "what it scans over has not 5 steps"),
        (["calls", scan, 2, "carries"], 0, "what it scans over has not 4 steps"),
        (["calls", scan, 2, "body", "inputs", 0, 2], [9], "a sub-graph takes|and the row's rule"),
        (["calls", scan, 2, "body", "outputs"], [], "its body changes the shape"),
        (["calls", switch, 2, "reads"], [[1], [77]], "a branch reads the inputs"),
        (["calls", switch, 2, "writes"], [[1], [1]], "made by no branch"),
        (["calls", switch, 2, "parts", 0, "calls", 0, 0], "scan", "not in the file's list|needs body"),
    ):
        with pytest.raises(LoadError, match=text):
            from_bytes(edited(made, "flow", put(path, value)))


def test_files_of_other_kinds(tmp_path):
    at = tmp_path / "x.glp"
    for content, text in (
        (b"", "is empty"),
        (b"PK\x03\x04" + bytes(20), "zip archive"),
        (b"hello world, hello", "not a safetensors file|larger than"),
    ):
        at.write_bytes(content)
        with pytest.raises(LoadError, match=text):
            gl.jit.load(at)
    gl.save({"a": gl.ones(2)}, at)
    with pytest.raises(LoadError, match=r"it holds no program \(only tensors"):
        gl.jit.load(at)
    at.write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    with pytest.raises(LoadError, match="header would be larger"):
        gl.jit.load(at)
    with pytest.raises(FileNotFoundError):
        gl.jit.load(tmp_path / "missing.glp")
    with pytest.raises(TypeError, match="expected a path"):
        gl.jit.load(b"bytes")


def test_what_a_save_does_not_finish_leaves_the_old_file(made, tmp_path, monkeypatch):
    at = tmp_path / "p.glp"
    made["mlp"].save(at)
    before = at.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        made["lstm"].save(at)
    assert at.read_bytes() == before and list(tmp_path.iterdir()) == [at]


def test_the_limit_is_the_callers(made):
    content = to_bytes(made["cnn"]._plan, made["cnn"].tensors())
    with pytest.raises(LoadError, match=r"its results would take [\d,]+ bytes, and the limit is 3,000"):
        from_bytes(content, max_bytes=3000)
    dynamic = from_bytes(to_bytes(made["mlp"]._plan, made["mlp"].tensors()))
    assert dynamic(gl.randn(7, 4)).shape == (7, 2)


HALF = custom_op("jitfile::half", lambda x, *, by=0.5: x * by, infer=lambda x: x, grad=lambda g, by: g * by)


def test_an_operation_of_ones_own(tmp_path):
    gl.jit.trace(lambda x: HALF(x, by=0.25) + 1, (gl.ones(2),)).save(tmp_path / "p.glp")
    with pytest.raises(LoadError, match=r"pass it as ops=\[gl\.library\.get\('jitfile::half'\)\]"):
        gl.jit.load(tmp_path / "p.glp")
    assert gl.jit.load(tmp_path / "p.glp", ops=[HALF])(gl.tensor([4.0, 8.0])).tolist() == [2.0, 3.0]

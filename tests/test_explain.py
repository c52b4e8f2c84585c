"""`gradlab.explain` and `gradlab explain`: the graph as text."""

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.cli import main


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.fc(x).relu()  # inside


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.blocks(x)


def example():
    model = Net()
    return model, model(gl.ones(2, 4, requires_grad=True)).sum()


def test_a_small_graph():
    w = gl.ones(3, requires_grad=True)
    found = gl.explain((w * w).sum())
    assert (found.operations, found.kept_bytes, found.parameters) == (2, 0, 0)
    lines = str(found).splitlines()
    assert lines[0] == "sum: 2 operations"
    assert [line.split()[1] for line in lines[1:]] == ["leaf", "mul", "sum", "output"]
    assert "test_explain.py:" in lines[2]


def test_a_model():
    model, loss = example()
    text = str(gl.explain(loss, model=model))
    assert "Sequential blocks" in text and "Block 1 … 2 (2 times)" in text and "built like 0" in text
    assert "weight 4×4, bias 4" in text and "60 parameters" in text and "2×4" in text
    assert "No gradient reaches 2 parameter tensors: unused.weight, unused.bias" in text
    add = next(line for line in text.splitlines() if " add " in line)
    assert "← " in add and "test_explain.py:" in add


def test_repeats_and_depth():
    _, loss = example()
    assert str(gl.explain(loss, repeats=True)).count("relu") == 3
    text = str(gl.explain(loss, depth=2))
    assert "relu" not in text and "Block 0" in text


def test_numbers_name_the_rows_that_are_used():
    a, b = gl.ones(2, requires_grad=True), gl.ones(2, requires_grad=True)
    c = a.exp()
    d = b.sin()
    rows = {line.split()[1]: line for line in str(gl.explain((c * d).sum())).splitlines()[1:]}
    numbers = {name: line.split()[0] for name, line in rows.items()}
    assert f"← {numbers['exp']}, {numbers['sin']}" in rows["mul"] and "←" not in rows["sum"]


def test_shapes_of_every_way_to_record():
    x, y = gl.ones(2, 3, requires_grad=True), gl.ones(3, requires_grad=True)
    z = (x * y + 1.0).exp() @ gl.ones(3, 4)
    z = z.reshape(4, 2).t()[0].double()
    shapes = [line.split()[2] for line in str(gl.explain(z.sum())).splitlines()[3:]]
    assert shapes[:4] == ["2×3", "2×3", "2×3", "2×4"] and "float64" in str(gl.explain(z))


def test_in_a_notebook():
    _, loss = example()
    assert gl.explain(loss)._repr_html_().startswith("<pre>") and repr(gl.explain(loss)) == str(gl.explain(loss))


def test_a_program():
    program = gl.graph.trace(lambda x: (x * 2).relu(), gl.ones(3))
    text = str(gl.explain(program))
    assert "2 operations" in text and "input 0" in text and "relu" in text


# ---------------------------------------------------------------- from the shell


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "explained.py").write_text(
        "import gradlab as gl\n"
        "def loss():\n    w = gl.ones(3, requires_grad=True)\n    return (w * w).sum()\n"
        "def model():\n    return gl.nn.Linear(3, 2), gl.ones(4, 3), lambda y: y.sum()\n"
        "def bare():\n    return gl.nn.Linear(3, 2), (gl.ones(4, 3),)\n"
        "def wrong():\n    return 3\n"
        "def flat():\n    return gl.ones(2)\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_text(module, capsys):
    assert main(["explain", "explained:loss"]) == 0
    assert "sum: 2 operations" in capsys.readouterr().out
    for name in ("model", "bare"):
        assert main(["explain", f"explained:{name}"]) == 0
        assert "weight 2×3" in capsys.readouterr().out


def test_files(module, capsys):
    assert main(["explain", "explained:model", "--svg", "a.svg", "--html", "a.html", "--dot", "a.dot", "--mermaid", "a.mmd"]) == 0
    assert capsys.readouterr().out.count("wrote") == 4
    assert (module / "a.svg").read_text(encoding="utf-8").startswith("<svg") and (module / "a.mmd").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["explained"], "module:function"),
        (["explained:nothing"], "no function 'nothing'"),
        (["explained:wrong"], "returned int"),
        (["explained:flat"], "no grad_fn"),
        (["explained:loss", "--depth", "-1"], "--depth"),
    ],
)
def test_mistakes(module, capsys, arguments, message):
    assert main(["explain", *arguments]) != 0
    assert message in capsys.readouterr().err

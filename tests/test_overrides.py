"""Classes that answer for functions: subclasses of Tensor, classes that are none, modes. In processes of their own, since it lasts."""

import subprocess
import sys

import pytest

import gradlab as gl

STARTS = {"gradlab": "import gradlab as torch, gradlab.nn.functional as F", "torch": "import torch, torch.nn.functional as F"}
HERE = ["gradlab", pytest.param("torch", marks=pytest.mark.torch)]


def run(engine, script):
    """What a script prints, with `torch` being one of the two."""
    if engine == "torch":
        pytest.importorskip("torch")
    program = f"{STARTS[engine]}\nimport copy, pickle\n{script}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


SUBCLASS = """
class Sub(torch.Tensor): pass
x, s, layer = torch.ones(2, 3), torch.ones(2, 3).as_subclass(Sub), torch.nn.Linear(3, 4)
calls = [
    lambda: s + 1, lambda: 1 + s, lambda: x + s, lambda: x - s, lambda: s @ x.T, lambda: x.T @ s, lambda: -s, lambda: s == x, lambda: s[0],
    lambda: s.T, lambda: s.data, lambda: s.sum(), lambda: s.max(0)[1], lambda: s.split(1)[0], lambda: s.view(-1), lambda: s.detach(),
    lambda: s.to(torch.float64), lambda: s.add_(0), lambda: s.new_zeros(3), lambda: next(iter(s)), lambda: torch.add(x, s),
    lambda: torch.cat([x, s]), lambda: torch.stack([s]), lambda: torch.einsum("ij->i", s), lambda: torch.zeros_like(s),
    lambda: torch.linalg.norm(s), lambda: F.relu(s), lambda: layer(s), lambda: torch.nn.ReLU()(s), lambda: Sub([1.0]), lambda: Sub(2, 3),
    lambda: torch.Tensor._make_subclass(Sub, x, True), lambda: torch.broadcast_tensors(x, s)[0], lambda: copy.copy(s), lambda: x * x,
]
print(*[type(call()).__name__ for call in calls])
y = (s.requires_grad_() * 3).sum()
y.backward()
print(type(y).__name__, y.requires_grad, s.grad.tolist(), len(s), s.shape == (2, 3), bool(s.isnan().any()))
print(torch.ones(2).as_subclass(Sub))
"""


@pytest.mark.parametrize("engine", HERE)
def test_results_of_a_subclass_are_of_it(engine):
    kinds = run(engine, SUBCLASS)
    assert kinds[:35] == ["Sub"] * 34 + ["Tensor"]
    assert " ".join(kinds[35:]) == "Sub True [[3.0, 3.0, 3.0], [3.0, 3.0, 3.0]] 2 True False Sub([1., 1.])"


LOGGED = """
class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print(resolve_name(func))
        return super().__torch_function__(func, types, args, kwargs or {})
s = torch.ones(2, 2).as_subclass(Logged)
s + 1; 3 - s; -s; s @ s; s > 0; s[0]; s[0] = 1; s.T; s.shape; s.sum(dim=0); torch.relu(s); torch.cat([s, s]); F.linear(s, s)
"""


@pytest.mark.parametrize("engine", HERE)
def test_a_subclass_is_told_which_function_was_called(engine):
    names = run(engine, f"from {engine}.overrides import resolve_name" + LOGGED)
    assert [name.removeprefix("torch.") for name in names] == [
        "Tensor.add", "Tensor.__rsub__", "Tensor.neg", "Tensor.matmul", "Tensor.gt", "Tensor.__getitem__", "Tensor.__setitem__",
        "Tensor.T.__get__", "Tensor.shape.__get__", "Tensor.sum", "relu", "cat", "nn.functional.linear",
    ]  # fmt: skip


HANDLED = """
HANDLED = {}
class Diagonal:
    def __init__(self, n, value): self.n, self.value = n, value
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in HANDLED or not all(issubclass(kind, (cls, torch.Tensor)) for kind in types): return NotImplemented
        return HANDLED[func](*args, **(kwargs or {}))
NOTE
def handles(func):
    return lambda own: HANDLED.setdefault(func, own)
@handles(torch.mean)
def mean(d): return d.value / d.n
@handles(torch.matmul)
def matmul(a, b): return (a.value * b) if isinstance(a, Diagonal) else b.value * a
HANDLED[torch.Tensor.matmul] = matmul
HANDLED[torch.Tensor.add] = HANDLED[torch.add] = lambda a, b: "sum"
d, x = Diagonal(4, 2.0), torch.ones(4, 4)
print(torch.mean(d), torch.matmul(d, x).sum().item(), (x @ d).sum().item(), x.matmul(d)[0, 0].item(), x + d, torch.add(x, d))
for call in (torch.exp, torch.linalg.det, F.relu, lambda d: x / d):
    try: call(d)
    except TypeError as error: print("refused")
"""
ANSWERS = ["0.5", "32.0", "32.0", "2.0", "sum", "sum"]


@pytest.mark.parametrize("engine", HERE)
def test_a_class_that_is_no_tensor_answers(engine):
    note = "torch.overrides.note(Diagonal)" if engine == "gradlab" else ""
    assert run(engine, HANDLED.replace("NOTE", note)) == [*ANSWERS, *["refused"] * 4]


def test_under_as_torch_such_a_class_is_noted_when_it_is_defined():
    script = "import gradlab.as_torch, torch, torch.nn.functional as F\n" + HANDLED.replace("NOTE", "")
    assert run("gradlab", script)[:6] == ANSWERS


MODE = """
class Names(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        print(func.__name__)
        return func(*args, **(kwargs or {}))
with Names():
    y = torch.zeros(2) + 1
    torch.relu(y.abs())
y * 2
"""


@pytest.mark.parametrize("engine", HERE)
def test_a_mode_sees_each_call_once(engine):
    start = f"from {engine}.overrides import TorchFunctionMode\n"
    assert run(engine, start + MODE) == ["zeros", "add", "abs", "relu"]


WITH_FACTS = """
class Image(torch.Tensor):
    def __new__(cls, data, source, **options): return super().__new__(cls, data, **options)
    def __init__(self, data, source): self.source = source
class Tagged(torch.nn.Parameter):
    def __new__(cls, data, tag=None):
        made = torch.Tensor._make_subclass(cls, data, True)
        made.tag = tag
        return made
image = Image([1.0, 2.0], "camera")
print(image.source, type(image * 2).__name__, hasattr(image * 2, "source"))
module = torch.nn.Module()
module.weight = Tagged(torch.ones(2), tag="first")
print(module.weight.tag, [type(p).__name__ for p in module.parameters()], type(module.weight * 2).__name__)
import __main__
print(pickle.loads(pickle.dumps(image)).source)
"""


@pytest.mark.parametrize("engine", HERE)
def test_instances_keep_what_was_put_on_them(engine):
    assert " ".join(run(engine, WITH_FACTS)) == "camera Image False first ['Tagged'] Tensor camera"


def test_nothing_asks_before_there_is_such_an_instance():
    script = """
class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None): return 7
import sys, types
print(isinstance(torch.add, types.FunctionType), "gradlab.overrides" in sys.modules)
print(torch.ones(1).as_subclass(Sub) + 1, isinstance(torch.add, types.FunctionType))
"""
    assert run("gradlab", script) == ["True", "False", "7", "False"]


COPIED = """
import io, pathlib, tempfile
torch.ones(1).as_subclass(type("Sub", (torch.Tensor,), {})) + 1
layer = torch.nn.TransformerEncoderLayer(4, 2, 8)
print(copy.deepcopy(layer).activation is F.relu)
file = pathlib.Path(tempfile.mkdtemp()) / "functions.pt"
torch.save({"f": F.relu, "t": torch.ones(1)}, file, PICKLE)
with torch.serialization.safe_globals([F.relu]):
    print(torch.load(file)["f"] is F.relu)
"""
EACH = """
from gradlab.overrides.overridable import places
each = [(name, function) for table in places().values() for name, function in table.items()]
print(len(each) > 300, [name for name, function in each if not copy.copy(function) is pickle.loads(pickle.dumps(function)) is function])
"""


@pytest.mark.parametrize("engine", HERE)
def test_functions_are_copied_and_written_as_functions_are(engine):
    script = COPIED.replace("PICKLE", "pickle=True" if engine == "gradlab" else "pickle")
    assert run(engine, script + EACH * (engine == "gradlab")) == ["True"] * 2 + ["True", "[]"] * (engine == "gradlab")


@pytest.mark.torch
def test_tensors_of_pytorch_are_data_where_classes_are_asked():
    """Once a class answers for functions, PyTorch's tensors, which have a __torch_function__ too, are read as before."""
    torch = pytest.importorskip("torch")

    class Named(gl.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    gl.add(gl.ones(2).as_subclass(Named), 1)
    for made in (gl.from_dlpack(torch.ones(2)), gl.as_tensor(torch.ones(2)), gl.asarray(torch.nn.Parameter(torch.ones(2)).detach())):
        assert made.tolist() == [1.0, 1.0]


EINSUM = """
class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print(len(args))
        return super().__torch_function__(func, types, args, kwargs or {})
s = torch.ones(2, 2).as_subclass(Told)
print(type(torch.einsum("ij,jk->ik", [s, s])).__name__, type(torch.einsum("ij,jk->ik", s, s)).__name__)
"""


@pytest.mark.parametrize("engine", HERE)
def test_einsum_tells_its_operands_one_by_one(engine):
    assert run(engine, EINSUM) == ["3", "3", "Told", "Told"]

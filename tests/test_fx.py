"""`gradlab.fx`: modules traced on proxies, their graphs read and changed, and run as code and node by node."""

import copy
import io
import math
import operator
import pickle

import pytest

import gradlab as gl
from gradlab import fx, nn
from gradlab.fx import Graph, GraphModule, Interpreter, Proxy, Tracer, Transformer, symbolic_trace
from gradlab.fx.proxy import GraphAppendingTracer, TraceError

from fx_models import MODELS, Block, alike, made


@fx.wrap
def kept_whole(x, power):
    if x.sum() > 0:
        return x**power
    return x


fx.wrap("len")


def several(x, *rest, factor=2, **options):
    return x * factor + rest[0] + options["more"]


WAYS = {
    "code": lambda g: g,
    "interpreter": lambda g: Interpreter(g).run,
    "transformer": lambda g: Transformer(g).transform(),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda g: pickle.loads(pickle.dumps(g)),
    "graph copy": lambda g: GraphModule(g, copy.deepcopy(g.graph)),
    "traced again": symbolic_trace,
    "compiled": gl.compile,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_the_same_numbers(name, way):
    model, arguments = made(name)
    traced = symbolic_trace(model)
    traced.graph.lint()
    run = WAYS[way](traced)
    for _ in range(2):
        alike(run(*arguments), model(*arguments), atol=1e-5 if way == "compiled" else 0)
    if isinstance(run, GraphModule):
        assert run.code == traced.code and list(run.state_dict()) == list(traced.state_dict())
    if isinstance(model, nn.Module):
        assert list(traced.state_dict()) == list(model.state_dict()) and not traced.training


def test_the_text():
    assert symbolic_trace(Block()).code == '''def forward(self, x, scale = 2.0):
    conv = self.conv(x)
    bn = self.bn(conv);  conv = None
    relu = gradlab.nn.functional.relu(bn, inplace = True);  bn = None
    down_0 = getattr(self.down, "0")(x);  x = None
    down_1 = getattr(self.down, "1")(down_0);  down_0 = None
    gain = self.gain
    mul = down_1 * gain;  down_1 = gain = None
    add = relu + mul;  relu = mul = None
    shift = self.shift
    add_1 = add + shift;  add = shift = None
    chunk = add_1.chunk(2, dim = 1);  add_1 = None
    getitem = chunk[0]
    getitem_1 = chunk[1];  chunk = None
    mul_1 = getitem * 2;  getitem = None
    neg = -getitem_1;  getitem_1 = None
    cat = gradlab.cat([mul_1, neg], dim = 1);  mul_1 = neg = None
    getattr_1 = cat.shape
    getitem_2 = getattr_1[0];  getattr_1 = None
    view = cat.view(getitem_2, -1);  cat = getitem_2 = None
    mean = view.mean(dim = 1);  view = None
    mul_2 = mean * scale;  mean = scale = None
    return mul_2
'''


def test_training_goes_on_in_the_traced_module():
    model, (x,) = made("block")
    traced = symbolic_trace(model.train())
    assert traced.training and traced.gain is model.gain and traced.bn is model.bn
    assert "hidden" not in traced.state_dict()
    optimizer = gl.optim.SGD(traced.parameters(), lr=0.1)
    before = model.conv.weight.detach().clone()
    traced(x).sum().backward()
    optimizer.step()
    assert not gl.equal(before, model.conv.weight) and model.bn.num_batches_tracked == 1


# ---------------------------------------------------------------- tracing


def test_what_depends_on_values_is_said():
    for f, text in (
        (lambda x: x if x.sum() > 0 else -x, r"condition.*gl\.where"),
        (lambda x: [y + 1 for y in x], "a loop goes over x"),
        (lambda x: float(x), "as a number"),
        (lambda x: range(x.shape[0]), "as a number"),
        (lambda x: 1 in x, "values of x"),
        (lambda x: math.floor(x.__array__()), "NumPy"),
    ):  # fmt: skip
        with pytest.raises(TraceError, match=text):
            symbolic_trace(f)
    module = symbolic_trace(lambda x, flag: x if flag else -x, concrete_args={"flag": False})
    assert module(gl.ones(1), False).item() == -1
    with pytest.raises(RuntimeError, match="flag=False"):
        module(gl.ones(1), True)
    with pytest.raises(RuntimeError, match="nothing"):
        symbolic_trace(lambda x: x, concrete_args={"nothing": 1})


def test_functions_that_are_kept_whole():
    traced = symbolic_trace(lambda x: kept_whole(x, power=2) + len(x) + math.sqrt(x.size(0)))
    assert [n.name for n in traced.graph.nodes if n.op == "call_function"] == ["kept_whole", "len_1", "add", "sqrt", "add_1"]
    assert traced(gl.full((4,), 3.0)).tolist() == [15] * 4 and kept_whole(gl.ones(1), 2).item() == 1
    alike(pickle.loads(pickle.dumps(traced))(gl.ones(4)), traced(gl.ones(4)))
    with pytest.raises(NotImplementedError, match="top of a module"):
        fx.wrap("kept_whole")
    with pytest.raises(RuntimeError, match="function"):
        fx.wrap(3)


def test_parameters_of_every_kind():
    traced = symbolic_trace(several)
    assert "def forward(self, x, *rest, factor = 2, **options)" in traced.code
    x = gl.ones(1)
    assert traced(x, 2 * x, factor=5, more=10).item() == several(x, 2 * x, factor=5, more=10).item() == 17


def test_tracers_of_ones_own():
    class Inside(Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return not isinstance(m, (nn.Linear, nn.ReLU)) and super().is_leaf_module(m, module_qualified_name)

        def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
            node = super().create_node(kind, target, args, kwargs, name, type_expr)
            node.meta["seen"] = True
            return node

        def call_module(self, m, forward, args, kwargs):
            self.met.append(self.path_of_module(m))
            return super().call_module(m, forward, args, kwargs)

    gl.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Tanh())
    tracer = Inside()
    tracer.met = []
    graph = tracer.trace(model)
    assert tracer.met == ["0", "1", "2"] and all(node.meta["seen"] for node in graph.nodes)
    assert [n.op for n in graph.nodes] == ["placeholder", "get_attr", "get_attr", "call_function", "call_function", "call_module", "output"]
    assert {n.target for n in graph.nodes if n.op == "get_attr"} == {"0.weight", "0.bias"}
    x = gl.randn(4, 2)
    assert gl.equal(GraphModule(model, graph)(x), model(x))
    tracer = Tracer()
    tracer.record_stack_traces = True
    assert "test_fx.py" in next(n for n in tracer.trace(lambda x: x + 1).nodes if n.op == "call_function").stack_trace


def test_nothing_stays_of_a_trace():
    model, (x,) = made("block")
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    symbolic_trace(model)
    with pytest.raises(TraceError):
        symbolic_trace(nn.Sequential(model, type("Bad", (nn.Module,), {"forward": lambda self, x: x if x.sum() else -x})()))
    assert {name: list(vars(module)) for name, module in model.named_modules()} == {name: list(known) for name, known in before.items()}
    assert all(vars(module)["_parameters"] is before[name]["_parameters"] for name, module in model.named_modules())
    assert math.sqrt is operator.attrgetter("sqrt")(math) and not fx.is_fx_tracing() and model(x).shape == (2,)


def test_hooks_of_modules_that_are_traced_through():
    inner = nn.Sequential(nn.Linear(2, 2))
    inner.register_forward_hook(lambda module, args, output: output * 2)
    model = nn.Sequential(inner)
    x = gl.ones(1, 2)
    assert gl.equal(symbolic_trace(model)(x), model(x))
    leaf = nn.Linear(2, 2)
    calls = []
    leaf.register_forward_hook(lambda *_: calls.append(1))
    traced = symbolic_trace(nn.Sequential(leaf))
    assert calls == []
    traced(x)
    assert calls == [1]


def test_constants_and_modules_within():
    constant = gl.tensor([1.0, 2.0])
    traced = symbolic_trace(lambda x: x + constant * 2 + nn.ReLU()(x))
    assert "_tensor_constant0" in traced.code and traced(gl.ones(2)).tolist() == [4, 6]
    alike(pickle.loads(pickle.dumps(traced))(gl.ones(2)), traced(gl.ones(2)))
    gl.save(traced.state_dict(), io.BytesIO())
    odd = symbolic_trace(lambda x: x.to(gl.float64, copy=True).to(gl.device("cpu")).view(gl.Size([1])) + float("inf") * 0)
    assert odd(gl.ones(1)).dtype == gl.float64 and "gradlab.float64" in odd.code


def test_proxies_outside_of_a_trace():
    graph = Graph()
    tracer = GraphAppendingTracer(graph)
    x, y = (Proxy(graph.placeholder(name), tracer) for name in "xy")
    z = gl.tanh(gl.cat([x, y]))
    graph.output(gl.add(z, gl.neg(z), alpha=2).node)
    assert GraphModule(nn.Module(), graph)(gl.zeros(1), gl.ones(1)).tolist() == pytest.approx([0, -0.76159], abs=1e-4)
    traced = symbolic_trace(lambda x: gl.relu(x))
    last = traced.graph.output_node()
    with traced.graph.inserting_before(last):
        last.args = (symbolic_trace(nn.LeakyReLU(0.5))(Proxy(last.args[0]) - 1).node,)
    traced.recompile()
    assert traced(gl.zeros(1)).item() == -0.5


def test_interpreters_of_ones_own():
    class Timed(Interpreter):
        def run_node(self, n):
            self.names.append(n.name)
            return super().run_node(n)

        def call_function(self, target, args, kwargs):
            return super().call_function(gl.neg if target == gl.relu else target, args, kwargs)

    traced = symbolic_trace(lambda x, y=3.0: gl.relu(x) * y)
    run = Timed(traced)
    run.names = []
    assert run.run(gl.ones(1)).item() == -3 and run.names == ["x", "y", "relu", "mul", "output"]
    assert run.boxed_run(values := [gl.ones(1), 2.0]).item() == -2 and values == []
    with pytest.raises(RuntimeError, match="parameter x"):
        Timed.run(run)

    class Negated(Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(gl.neg if target == gl.relu else target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return args[0].abs() if target == "sum" else super().call_method(target, args, kwargs)

    assert Negated(symbolic_trace(lambda x: gl.relu(x).sum())).transform().code.count("abs") == 3


def test_shapes_are_noted():
    model, (x,) = made("block")
    traced = symbolic_trace(model)
    fx.passes.shape_prop.ShapeProp(traced).propagate(x)
    found = {node.name: node.meta.get("tensor_meta") for node in traced.graph.nodes}
    assert found["conv"].shape == (2, 4, 4, 4) and found["conv"].stride == (64, 16, 4, 1) and found["mean"].dtype == gl.float32
    assert [part.shape for part in found["chunk"]] == [(2, 2, 4, 4)] * 2


def test_printing(capsys):
    traced = symbolic_trace(lambda x: gl.relu(x, ))
    traced.graph.print_tabular()
    assert "call_function  relu    <function relu" in capsys.readouterr().out
    line = "%relu : [num_users=1] = call_function[target=gradlab.relu](args = (%x,), kwargs = {})"
    assert str(traced.graph).splitlines()[2].strip() == line
    assert "class <lambda>(gradlab.nn.Module):\n    def forward(self, x):" in traced.print_readable()
    assert capsys.readouterr().out


def test_a_traceback_shows_the_graph_s_line():
    traced = symbolic_trace(lambda x: x @ gl.ones(3, 3))
    with pytest.raises(RuntimeError) as caught:
        traced(gl.ones(2, 2))
    assert any("matmul" in str(entry) for entry in caught.traceback)

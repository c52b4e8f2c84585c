"""Graphs of `gradlab.fx`: read, changed, made by hand, and what is wrong with them."""

import copy
import operator

import pytest

import gradlab as gl
import gradlab.nn.functional as F
from gradlab import fx, nn
from gradlab.fx import Graph, GraphModule, replace_pattern, symbolic_trace

from fx_models import made


def test_another_operation():
    def f(x, y):
        return x + y, gl.add(x, y), x.add(y)

    traced = symbolic_trace(f)
    for node in traced.graph.nodes:
        if any(node.target == pattern for pattern in (operator.add, gl.add, "add")):
            with traced.graph.inserting_after(node):
                new = traced.graph.call_function(gl.mul, node.args, node.kwargs)
                assert len(node.replace_all_uses_with(new)) == 1
            traced.graph.erase_node(node)
    traced.recompile()
    assert [t.item() for t in traced(gl.tensor(2.0), gl.tensor(5.0))] == [10, 10, 10]


def test_targets_are_found_by_the_functions():
    counts = {gl.relu: 0, F.relu: 0, gl.cat: 0}
    for node in symbolic_trace(lambda x: gl.cat([gl.relu(x), F.relu(x, inplace=False)])).graph.nodes:
        if node.op == "call_function":
            counts[node.target] += 1
            assert node.target in (gl.relu, F.relu, gl.cat)
    assert counts == {gl.relu: 1, F.relu: 1, gl.cat: 1}


def fused(conv, bn):
    twin = copy.deepcopy(conv)
    scale = bn.weight / gl.sqrt(bn.running_var + bn.eps)
    twin.weight = nn.Parameter(conv.weight * scale.reshape(-1, 1, 1, 1))
    bias = gl.zeros_like(bn.running_mean) if conv.bias is None else conv.bias
    twin.bias = nn.Parameter((bias - bn.running_mean) * scale + bn.bias)
    return twin


def test_convolutions_and_batch_norms_become_one():
    model, (x,) = made("block")
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            gl.nn.init.uniform_(module.running_mean)
            gl.nn.init.uniform_(module.running_var, 0.5, 2)
    traced = symbolic_trace(copy.deepcopy(model))
    modules = dict(traced.named_modules())
    for node in traced.graph.nodes:
        if node.op == "call_module" and type(modules[node.target]) is nn.BatchNorm2d and type(modules[node.args[0].target]) is nn.Conv2d:
            path, _, name = node.args[0].target.rpartition(".")
            setattr(modules[path], name, fused(modules[node.args[0].target], modules[node.target]))
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    traced.graph.lint()
    traced.recompile()
    traced.delete_all_unused_submodules()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in traced.modules())
    assert gl.allclose(traced(x), model(x), atol=1e-5)


def test_features_from_the_middle():
    model, (x,) = made("block")
    traced = symbolic_trace(model)
    node = next(node for node in traced.graph.nodes if node.target == "down.0")
    traced.graph.output_node().args = ((node, node.prev),)
    assert traced.graph.eliminate_dead_code()
    traced.recompile()
    down, relu = traced(x)
    assert gl.equal(down, model.down[0](x)) and relu.shape == (2, 4, 4, 4)
    assert "chunk" not in traced.code


def test_graphs_by_hand():
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y", default_value=2.0)
    w = graph.get_attr("inner.w")
    lin = graph.call_module("lin", (x,))
    out = graph.call_method("mul", (lin, w))
    graph.output((out, graph.call_function(operator.mul, (x, y))))
    with graph.inserting_before(out):
        graph.call_function(print, ("called",))
    weight = nn.Parameter(gl.full((1,), 3.0))
    module = GraphModule({"inner.w": weight, "lin": nn.Identity()}, graph, "ByHand")
    assert [t.item() for t in module(gl.tensor(2.0))] == [6, 4]
    assert type(module).__name__ == "ByHand" and list(module.state_dict()) == ["inner.w"] and module.inner.w is weight
    assert [n.name for n in graph.nodes] == ["x", "y", "inner_w", "lin", "print_1", "mul", "mul_1", "output"] and len(graph.nodes) == 8
    assert list(w.users) == [out] and out.all_input_nodes == [lin, w] and x.next is y and y.prev is x
    assert graph.find_nodes(op="call_module") == [lin]
    with graph.inserting_after(lin):
        first = graph.call_function(gl.neg, (lin,))
        second = graph.call_function(gl.neg, (first,))
    out.update_arg(0, second)
    out.update_kwarg("other", out.args[1])
    out.args = out.args[:1]
    graph.lint()
    assert module.recompile().src == module.code and module(gl.tensor(2.0))[0].item() == 6
    assert list(lin.users) == [first]
    lin.append(w)
    assert lin.next is w
    with pytest.raises(RuntimeError, match="mul uses neg_1, which comes later"):
        w.prepend(out)
        graph.lint()


def test_what_is_wrong_with_a_graph_is_said():
    graph, other = Graph(), Graph()
    x = graph.placeholder("x")
    y = graph.call_function(gl.relu, (x,))
    with pytest.raises(RuntimeError, match="relu"):
        graph.erase_node(x)
    with pytest.raises(ValueError, match="another graph"):
        other.erase_node(y)
    with pytest.raises(NotImplementedError, match=r"assign node\.args"):
        graph.call_function(gl.cat, ([x, y],)).args[0].append(x)
    with pytest.raises(ValueError, match="function"):
        graph.call_function("relu", (x,))
    with pytest.raises(ValueError, match="op is one of"):
        graph.create_node("call", gl.relu)
    other.call_function(gl.relu, (x,))
    with pytest.raises(RuntimeError, match="another graph"):
        other.lint()
    graph.call_module("nothing", (x,))
    with pytest.raises(RuntimeError, match="'nothing'"):
        GraphModule(nn.Module(), graph)
    with pytest.raises(RuntimeError, match="'nothing'"):
        GraphModule({}, graph)


def test_names():
    graph = Graph()
    names = [graph.placeholder(name).name for name in ("x", "x", "x_1", "input", "3d", "a.b", "self")]
    assert names == ["x", "x_1", "x_2", "input_1", "_3d", "a_b", "self_1"]
    assert [graph.call_function(f, ()).name for f in (gl.max, gl.relu, gl.relu, getattr)] == ["max_1", "relu", "relu_1", "getattr_1"]


def test_submodules():
    traced = symbolic_trace(made("block")[0])
    assert traced.add_submodule("a.b.c", nn.ReLU()) and isinstance(traced.a.b.c, nn.ReLU)
    assert not traced.add_submodule("gain.x", nn.ReLU())
    assert traced.delete_submodule("a.b.c") and not traced.delete_submodule("a.b.c")
    traced.delete_all_unused_submodules()
    assert not hasattr(traced, "a") and hasattr(traced, "down")
    traced.lost = nn.Linear(1, 1)
    assert isinstance(copy.deepcopy(traced).lost, nn.Linear) and copy.copy(traced).lost is traced.lost


def test_replace_pattern():
    def f(x, w1, w2):
        return x + gl.max(gl.cat([gl.neg(w1), w2]).sum()) + gl.max(gl.cat([gl.neg(w1), w2]).sum())

    traced = symbolic_trace(f)
    found = replace_pattern(traced, lambda a, b: gl.cat([gl.neg(a), b]).sum(), lambda a, b: gl.stack([a, b]))
    assert len(found) == 2 and found[0].anchor.name == "sum_1"
    traced.graph.lint()
    assert traced.code.count("stack") > 2 and "cat" not in traced.code
    assert traced(gl.zeros(1), gl.ones(2), gl.full((2,), 3.0)).item() == 6
    chained = symbolic_trace(lambda x: gl.relu(gl.relu(gl.relu(x))))
    assert len(replace_pattern(chained, lambda x: gl.relu(x), lambda x: gl.neg(x))) == 3
    assert chained(gl.ones(1)).item() == -1
    inside_used = symbolic_trace(lambda x: (gl.neg(x).sum(), gl.neg(x)))
    shared = symbolic_trace(lambda x: ((n := gl.neg(x)).sum(), n))
    pattern = lambda x: gl.neg(x).sum()
    assert [len(replace_pattern(g, pattern, lambda x: x.mean())) for g in (inside_used, shared)] == [1, 0]


class Halves(gl.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = gl.nn.Parameter(gl.ones(4))
        self.first = gl.nn.Linear(4, 4)

    def forward(self, x, y):
        low, high = (self.first(x) + self.bias).chunk(2, 1)
        return low * self.first(y)[:, :2], high.relu() + low


def test_a_graph_in_parts():
    model = Halves()
    whole, inputs = fx.symbolic_trace(model), (gl.randn(3, 4), gl.randn(3, 4))
    want = model(*inputs)
    count = 0

    def in_turns(node):
        nonlocal count
        count += 1
        return count % 3

    for choose, options in (
        (lambda node: 0, {}), (in_turns, {}), (lambda node: f"is_{node.op}", {"tuple_return": True}),
        (lambda node: node.name, {"keep_original_order": True}),
    ):  # fmt: skip
        names = {}
        try:
            parts = fx.passes.split_module.split_module(whole, model, choose, names, **options)
        except RuntimeError as error:
            assert "need each other" in str(error)
            continue
        parts.graph.lint()
        assert set(names.values()) == {"first"} and all(name.startswith("submod_") for name, _ in parts.named_children() if name != "bias")
        for a, b in zip(parts(*inputs), want, strict=True):
            assert gl.equal(a, b)
    assert len(list(parts.named_children())) == len([n for n in whole.graph.nodes if n.op.startswith("call")])
    named = fx.passes.split_module.split_module(whole, None, lambda node: 0, partition_affix="a", keep_original_node_name=True)
    assert [name for name, _ in named.named_children()] == ["submod_a_0"]
    assert {n.name for n in named.submod_a_0.graph.nodes} >= {"chunk", "relu"}
    with pytest.raises(RuntimeError, match="need each other"):
        fx.passes.split_module.split_module(whole, None, lambda node: int(node.name == "chunk"))

"""What stands for the modules of PyTorch's that are no rooms of gradlab's: trees, marks for the compiler, futures, small helpers."""

import importlib
import threading
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

import gradlab as gl
from gradlab.distributed import futures
from gradlab.pytorch import compiler, compiler_settings, core, helpers, optimizers, pytree, types
from gradlab.pytorch.standing import stand_in

Pair = namedtuple("Pair", "left right")


TREE = {
    "x": [1, (2, None)], "n": Pair(3, {"k": 4}), "o": OrderedDict(z=5), "d": defaultdict(list, q=6), "e": deque([7, 8], maxlen=4),
    "s": "ab",
}  # fmt: skip


class Box:
    def __init__(self, content):
        self.content = content


class TestTrees:

    def test_there_and_back(self):
        leaves, spec = pytree.tree_flatten(TREE)
        assert leaves == [1, 2, None, 3, 4, 5, 6, 7, 8, "ab"]
        assert pytree.tree_map(lambda n: n + 1, [gl.Size((1, 2))]) == [(2, 3)]  # sizes are tuples: a tree's map reaches them
        assert spec.num_leaves == 10 and spec == pytree.tree_structure(TREE)
        back = pytree.tree_unflatten(leaves, spec)
        assert back == TREE and type(back["n"]) is Pair and back["e"].maxlen == 4 and back["d"].default_factory is list
        assert isinstance(pytree.tree_structure(1), pytree.LeafSpec) and pytree.tree_structure(1) == pytree.LeafSpec()
        with pytest.raises(ValueError, match="9 leaves"):
            pytree.tree_unflatten(leaves[1:], spec)

    def test_maps(self):
        assert pytree.tree_map(lambda a, b: a + b, {"a": 1, "b": [2]}, {"b": [20], "a": 10}) == {"a": 11, "b": [22]}
        assert pytree.tree_map(len, [(1, 2), "abc"], is_leaf=lambda x: isinstance(x, tuple)) == [2, 3]
        assert pytree.tree_map_only(int, lambda x: -x, [1, "a", 2.5]) == [-1, "a", 2.5]
        assert pytree.tree_map_only(lambda x: x == "a", str.upper, [1, "a"]) == [1, "A"]
        seen = []
        assert pytree.tree_map_(seen.append, (1, [2])) == (1, [2]) and seen == [1, 2]
        assert pytree.tree_all(bool, [1, (2,)]) and not pytree.tree_any(bool, [0, ()]) and pytree.tree_any_only(str, bool, [0, "x"])
        with pytest.raises(ValueError, match="expected a list"):
            pytree.tree_map(max, [1], (1,))
        with pytest.raises(ValueError, match="other parts"):
            pytree.tree_map(max, [1], [1, 2])

    def test_paths(self):
        paths = pytree.tree_leaves_with_path(TREE)
        first = ["['x'][0]", "['x'][1][0]", "['x'][1][1]", "['n'].left", "['n'].right['k']"]
        assert [pytree.keystr(path) for path, _ in paths][:5] == first
        assert all(pytree.key_get(TREE, path) is leaf for path, leaf in paths)
        assert pytree.tree_map_with_path(lambda path, x: (len(path), x), [1, [2]]) == [(1, 1), [(2, 2)]]

    def test_classes_of_ones_own(self):
        pytree.register_pytree_node(Box, lambda box: ([box.content], "context"), lambda parts, context: Box((*parts, context)))
        try:
            assert pytree.tree_map(lambda x: x + 1, Box(1)).content == (2, "context")
            with pytest.raises(ValueError, match="already"):
                pytree.register_pytree_node(Box, None, None)
        finally:
            del pytree.SUPPORTED_NODES[Box]
        assert pytree.tree_leaves(box := Box(1)) == [box]

    def test_spread_over_a_structure(self):
        spec = pytree.tree_structure([{"a": 1, "b": 2}, 3])
        found = [pytree._broadcast_to_and_flatten(tree, spec) for tree in (5, [6, 7], [6], (6, 7))]
        assert found == [[5, 5, 5], [6, 6, 7], None, None]


class TestCompiler:
    def test_marks_give_back_what_they_are_put_on(self):
        def function(x):
            return x

        for mark in (
            compiler.disable, compiler.disable(), compiler.disable(recursive=False), compiler.allow_in_graph,
            compiler.assume_constant_result,
            compiler.substitute_in_graph(len), optimizers._disable_dynamo_if_unsupported(),
        ):  # fmt: skip
            assert mark(function) is function
        with compiler.set_stance("force_eager"), compiler_settings.patch(suppress_errors=True):
            assert compiler.list_backends() == [compiler.get_default_backend()]
        with pytest.raises(ValueError, match="one compiler"):
            compiler.set_default_backend("eager")

    def test_whether_it_is_traced(self):
        @gl.compile
        def step(x):
            return x * 2 if compiler.is_compiling() and helpers.is_compiling() and core._get_tracing_state() is not None else x

        assert [step(gl.ones(1)).item() for _ in range(3)] == [1, 2, 2]  # the first call is eager
        assert isinstance(compiler.optimize("inductor")(gl.nn.Linear(1, 1)), compiler.OptimizedModule)
        with pytest.raises(NotImplementedError, match="explain"):
            compiler.explain(step)


class TestFutures:
    def test_results_from_another_thread(self):
        first, second = futures.Future(), futures.Future()
        both, after = futures.collect_all([first, second]), first.then(lambda done: done.value() + 1)
        with pytest.raises(RuntimeError, match="no result yet"):
            first.value()
        for future, value in ((first, 1), (second, 2)):
            threading.Thread(target=future.set_result, args=(value,)).start()
        assert both.wait() == [first, second] and after.wait() == 2 and futures.wait_all([first, second]) == [1, 2]
        with pytest.raises(RuntimeError, match="already"):
            first.set_result(3)
        assert futures.collect_all([]).wait() == []

    def test_errors(self):
        future = futures.Future()
        after = future.then(lambda done: done.value())
        future.set_exception(KeyError("x"))
        for each in (future, after):
            with pytest.raises(KeyError):
                each.wait()


class TestHelpers:
    def test_rows_of_tensors(self):
        parts = [gl.ones(2, 2), gl.zeros(3)]
        flat = helpers._flatten_dense_tensors(parts)
        assert flat.tolist() == [1, 1, 1, 1, 0, 0, 0]
        assert [t.shape for t in helpers._unflatten_dense_tensors(flat, parts)] == [(2, 2), (3,)]
        groups = list(helpers._take_tensors([gl.ones(2), gl.ones(2), gl.ones(2, dtype=gl.float64), gl.ones(9)], 16))
        assert [[t.numel() for t in group] for group in groups] == [[2, 2], [2], [9]]
        grouped = helpers._group_tensors_by_device_and_dtype([[gl.ones(1), gl.ones(2, dtype=gl.float64)], [None, None]], with_indices=True)
        assert [(key[1], places) for key, (_, places) in grouped.items()] == [(gl.float32, [0]), (gl.float64, [1])]

    def test_errors_from_elsewhere(self):
        for kind, raised in ((ValueError, ValueError), (KeyError, RuntimeError)):
            try:
                raise kind("the text")
            except kind:
                wrapper = helpers.ExceptionWrapper(where="in worker 3")
            with pytest.raises(raised, match=r"(?s)Caught .* in worker 3.*the text"):
                wrapper.reraise()

    def test_contexts_as_decorators(self):
        entered = []

        class Context(helpers._DecoratorContextManager):
            def __enter__(self):
                entered.append("in")

            def __exit__(self, *_):
                entered.append("out")

        @Context()
        def function():
            entered.append("body")

        @Context()
        def generator():
            entered.append((yield 1))
            return 3

        function()
        assert entered == ["in", "body", "out"]
        running = generator()
        next(running)
        entered.append("between")
        with pytest.raises(StopIteration) as stop:
            running.send("sent")
        assert entered[3:] == ["in", "out", "between", "in", "sent", "out"] and stop.value.value == 3

        class Bare(Context, helpers._NoParamDecoratorContextManager):
            pass

        assert Bare(lambda: 5)() == 5

    def test_small_ones(self):
        assert helpers._get_device_index("cuda:1") == 1 and helpers._get_device_index("cpu", allow_cpu=True) == -1
        with pytest.raises(ValueError, match="CUDA"):
            helpers._get_device_index("cpu")
        assert helpers._import_dotted_name("os.path.join") is importlib.import_module("os").path.join
        assert helpers._element_size(gl.float64) == 8 and helpers.cpu_count() > 0

        class Known:
            name = helpers.classproperty(lambda cls: cls.__name__)

        assert Known.name == Known().name == "Known"
        with pytest.raises(AssertionError, match="said"):
            helpers._assert(False, "said")


def test_steps_of_other_optimizers():
    class Descent(gl.optim.Optimizer):
        @optimizers._use_grad_for_differentiable
        def step(self, closure=None):
            assert not gl.is_grad_enabled()
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-group["lr"])

    weight = gl.nn.Parameter(gl.ones(2))
    (weight * 3).sum().backward()
    Descent([weight], {"lr": 0.5}).step()
    assert weight.tolist() == [-0.5, -0.5]
    assert optimizers._get_value(gl.tensor(2.0)) == optimizers._dispatch_sqrt(4) == optimizers._dispatch_sqrt(gl.tensor(4.0)) == 2
    assert optimizers._default_to_fused_or_foreach([], False) == (False, False) and optimizers._get_scalar_dtype() is gl.float32


def test_stand_ins():
    error = stand_in("torch.a", "SomeError", "reason")
    with pytest.raises(error):
        raise error("text")
    assert issubclass(stand_in("torch.a", "SomeWarning", ""), Warning) and issubclass(stand_in("torch.a.exc", "Unsupported", ""), Exception)
    kind = stand_in("torch.a", "Kind", "the reason")
    assert repr(kind) == "<stand-in for torch.a.Kind>" and not isinstance(3, kind) and not hasattr(kind, "member")
    with pytest.raises(AttributeError, match=r"torch\.a\.Kind\.member: the reason"):
        _ = kind.member
    with pytest.raises(NotImplementedError, match=r"gradlab has no torch\.a\.make: the reason"):
        stand_in("torch.a", "make", "the reason")()
    assert stand_in("torch.a", "is_available", "")() is False and stand_in("torch.a", "device_count", "")() == 0
    assert isinstance(3, types.Number)

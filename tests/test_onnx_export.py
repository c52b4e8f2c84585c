"""ONNX export: names, files, checks, errors, control flow, custom rows, the models."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph import trace
from gradlab.library import custom_op
from gradlab.models import GPT, DigitsCNN, GPTConfig, resnet20
from gradlab.onnx import ExportError, ExportWarning, Unsupported, UnsupportedError, checking, export, exports

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def layers():
    gl.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def kinds(path):
    return [n.op_type for n in onnx.load(str(path)).graph.node]


def run(path, **inputs):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


# ---------------------------------------------------------------- names and reports


def test_a_module_keeps_the_names_of_its_parameters(tmp_path):
    found = export(layers(), gl.randn(2, 4), tmp_path / "m.onnx")
    graph = onnx.load(str(tmp_path / "m.onnx")).graph
    assert [i.name for i in graph.initializer] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [n.op_type for n in graph.node] == ["Gemm", "Relu", "Gemm"] and graph.node[0].name == "/Sequential/0/Gemm"
    assert found.inputs == {"input": (2, 4)} and found.outputs == {"output": (2, 3)} and found.parameters == 67 and found.nodes == 3
    assert found.checked_by.startswith("ONNX Runtime ") and found.opset == 20 and found.deviation < 1e-5 and not found.sizes
    model = onnx.load(str(tmp_path / "m.onnx"))
    assert model.producer_name == "gradlab" and model.opset_import[0].version == 20


def test_inputs_and_outputs_are_named_by_the_function(tmp_path):
    def function(x, rest):
        return {"sum": x + rest["a"], "both": (rest["b"], x * 2)}

    rest = {"a": gl.ones(3), "b": gl.zeros(3)}
    found = export(function, (gl.ones(3), rest), tmp_path / "m.onnx")
    assert list(found.inputs) == ["x", "rest_a", "rest_b"] and list(found.outputs) == ["sum", "both_0", "both_1"]
    found = export(function, (gl.ones(3), rest), tmp_path / "m.onnx", input_names=["p", "q", "r"], output_names=["s", "t", "u"])
    assert list(found.inputs) == ["p", "q", "r"] and list(found.outputs) == ["s", "t", "u"]
    found = export(lambda x: x.max(1), gl.randn(2, 3), tmp_path / "m.onnx")
    assert list(found.outputs) == ["values", "indices"]
    with pytest.raises(ValueError, match="input_names"):
        export(function, (gl.ones(3), rest), tmp_path / "m.onnx", input_names=["p", "q"])
    with pytest.raises(ValueError, match="output_names"):
        export(lambda x: x + 1, gl.ones(3), tmp_path / "m.onnx", output_names=["x", "y"])
    with pytest.raises(ValueError, match="of an input and of an output"):
        export(lambda x: x + 1, gl.ones(3), tmp_path / "m.onnx", output_names=["x"])


def test_functions_programs_and_compiled_modules(tmp_path):
    model, offset = layers(), gl.ones(3)

    def function(x):
        return model(x) + offset

    export(function, gl.randn(2, 4), tmp_path / "m.onnx")
    assert [i.name for i in onnx.load(str(tmp_path / "m.onnx")).graph.initializer][:2] == ["model.0.weight", "model.0.bias"]
    assert "offset" in [i.name for i in onnx.load(str(tmp_path / "m.onnx")).graph.initializer]
    x = gl.randn(2, 4)
    assert export(trace(function, x), x, tmp_path / "m.onnx").inputs == {"input_0": (2, 4)}
    assert export(gl.compile(model), x, tmp_path / "m.onnx").nodes == 3
    assert export(gl.compile(function), x, tmp_path / "m.onnx").nodes == 4
    with pytest.raises(TypeError, match="a module, a function or a traced program"):
        export(3, x, tmp_path / "m.onnx")


@pytest.mark.parametrize("example", [(np.ones(2, np.float32),), ([gl.ones(2), {"k": np.ones(2)}],)], ids=["plain", "nested"])
def test_an_example_of_numpy_arrays_is_refused(example, tmp_path):
    with pytest.raises(TypeError, match="from_numpy"):
        export(lambda x: x, example, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_results_that_are_inputs_constants_or_the_same_value(tmp_path):
    kept = gl.ones(2)

    def function(x):
        y = x + 1
        return x, y, y, kept, gl.zeros(2)

    found = export(function, gl.ones(2), tmp_path / "m.onnx")
    assert len(found.outputs) == 5
    x, y, z, k, zero = run(tmp_path / "m.onnx", x=np.full(2, 5, np.float32))
    assert (x == 5).all() and (y == 6).all() and (z == 6).all() and (k == 1).all() and (zero == 0).all()


@pytest.mark.parametrize("opset", [20, 21, 22])
def test_opsets(tmp_path, opset):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2))
    found = export(model, gl.randn(2, 3, 8, 8), tmp_path / "m.onnx", opset=opset)
    assert found.opset == opset and onnx.load(str(tmp_path / "m.onnx")).opset_import[0].version == opset
    for wrong in (6, 99):
        with pytest.raises(ValueError, match="opset is 7 to"):
            export(model, gl.randn(2, 3, 8, 8), tmp_path / "m.onnx", opset=wrong)


def test_older_opsets(tmp_path):
    """Down to 11; what an older one cannot say keeps opset 20, and so do those before 11, with a warning."""
    model, x, path = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Softmax(0)), gl.randn(2, 3), tmp_path / "m.onnx"
    for opset in (11, 13, 17, 19):
        for checked in (True, False):
            found = export(model, x, path, opset_version=opset, dynamic={0: {0: "batch"}}, check=checked)
            file = onnx.load(str(path))
            assert found.opset == opset == file.opset_import[0].version and found.sizes == ("batch=3",) * checked
            assert file.ir_version == onnx.helper.find_min_ir_version_for(file.opset_import)
            got = run(path, **{file.graph.input[0].name: x.numpy()})[0]
            np.testing.assert_allclose(got, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    bits = gl.tensor([1, 2])
    for function, given, opset, why in ((lambda x: x & 3, bits, 17, "No Op registered for BitwiseAnd"), (model, x, 10, "the oldest opset"),
                                        (lambda x: x << 1, bits, 11, "left_shift: Pow of opset 11")):  # fmt: skip
        with pytest.warns(ExportWarning, match=f"the file has opset 20, not {opset}: .*{why}"):
            found = export(function, given, path, opset=opset)
        assert found.opset == 20 == onnx.load(str(path)).opset_import[0].version


# ---------------------------------------------------------------- files


def test_large_tensors_in_a_file_of_their_own(tmp_path):
    model = nn.Linear(64, 32)
    export(model, gl.randn(2, 64), tmp_path / "m.onnx", external_data=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert (tmp_path / "m.onnx").stat().st_size < 2000 < (tmp_path / "m.onnx.data").stat().st_size
    (got,) = run(tmp_path / "m.onnx", input=np.ones((3, 64), np.float32)[:2])
    np.testing.assert_allclose(got, model(gl.ones(2, 64)).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_failures_leave_nothing_and_keep_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_text("before")
    with pytest.raises(UnsupportedError):
        export(gl.linalg.pinv, gl.eye(2), path)
    with pytest.raises(ExportError, match=r"output output deviates by .* of its largest number .* -1 is allowed"):
        export(nn.Softmax(1), gl.randn(20, 50), path, tolerance=-1.0)
    assert path.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    with pytest.raises(FileNotFoundError, match="no directory"):
        export(layers(), gl.randn(2, 4), tmp_path / "there" / "m.onnx")
    monkeypatch.setattr(gl.onnx.exporting.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        export(layers(), gl.randn(2, 4), path)
    assert path.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_without_check(tmp_path):
    found = export(layers(), gl.randn(2, 4), tmp_path / "m.onnx", check=False)
    assert "check=False" in found.checked_by and kinds(tmp_path / "m.onnx") == ["Gemm", "Relu", "Gemm"]


def test_the_room_imports_without_the_packages(tmp_path):
    code = (
        "import sys; sys.modules['onnx'] = sys.modules['onnxruntime'] = None; import gradlab as gl; import gradlab.onnx\n"
        f"try: gl.onnx.export(gl.nn.ReLU(), gl.ones(2), {str(tmp_path / 'm.onnx')!r})\n"
        "except ImportError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "gradlab-engine[onnx]"' in found.stdout and not list(tmp_path.iterdir())


# ---------------------------------------------------------------- what cannot be said


def test_all_unsupported_operations_are_named_with_their_lines(tmp_path):
    def function(x):
        y = gl.linalg.pinv(x)
        z = gl.linalg.eigvalsh(y @ y.mT)
        return gl.linalg.pinv(x * z)

    with pytest.raises(UnsupportedError) as caught:
        export(function, gl.eye(3), tmp_path / "m.onnx")
    text = str(caught.value)
    assert [row for row, _, _ in caught.value.calls] == ["pinv", "eigh", "pinv"]
    assert re.search(r"pinv: .* - test_onnx_export.py:\d+: y = gl.linalg.pinv\(x\)", text)
    assert re.search(r"eigh: .* - test_onnx_export.py:\d+: z = gl.linalg.eigvalsh", text) and "return gl.linalg.pinv(x * z)" in text


def test_training_mode_is_warned_about_and_leaves_the_model_alone(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    gl.manual_seed(4)
    wanted = gl.randn(3)
    gl.manual_seed(4)
    with pytest.warns(ExportWarning) as caught:
        found = export(model, gl.ones(4, 3), tmp_path / "m.onnx")
    assert any("draws random numbers" in str(w.message) and "eval()" in str(w.message) for w in caught)
    assert any("running statistics" in str(w.message) for w in caught) and found.unchecked == ("output",)
    assert "Dropout" in kinds(tmp_path / "m.onnx") and (gl.randn(3) == wanted).all()
    for name, value in model.state_dict().items():
        assert (value == before[name]).all(), name
    export(model.eval(), gl.randn(4, 3), tmp_path / "m.onnx")
    assert kinds(tmp_path / "m.onnx") == ["Gemm", "BatchNormalization"]


def test_gradients_inside_a_program(tmp_path):
    model = layers()

    def slope(x):
        x = x.detach().requires_grad_()
        return gl.autograd.grad(model(x).square().sum(), x)[0]

    assert export(slope, gl.randn(2, 4), tmp_path / "m.onnx").deviation < 1e-5


def test_a_row_of_ones_own(tmp_path):
    cube = custom_op("export_test::cube", lambda x: x * x * x, replace=True)
    with pytest.raises(UnsupportedError, match="cube"):
        export(cube, gl.randn(3), tmp_path / "m.onnx")

    @exports(cube.row.name)
    def converter(e, x, **_):
        if x.rank > 1:
            raise Unsupported("only vectors")
        return e("Pow", x, 3.0)

    assert "Pow" in (export(cube, gl.randn(3), tmp_path / "m.onnx"), kinds(tmp_path / "m.onnx"))[1]
    with pytest.raises(UnsupportedError, match="only vectors"):
        export(cube, gl.randn(3, 3), tmp_path / "m.onnx")


# ---------------------------------------------------------------- control flow


def test_cond_is_an_if(tmp_path):
    weight = gl.tensor([2.0, 3.0])

    def function(x):
        return gl.cond(x.sum() > 0, lambda x: (x * weight, x), lambda x: (x - 1, weight), (x,))

    export(function, gl.tensor([1.0, 2.0]), tmp_path / "m.onnx")
    assert "If" in kinds(tmp_path / "m.onnx")
    for value in ([1.0, 2.0], [-1.0, -2.0]):
        a, b = function(gl.tensor(value))
        got = run(tmp_path / "m.onnx", x=np.array(value, np.float32))
        np.testing.assert_allclose(got, [a.numpy(), b.numpy()])


def test_switch_is_a_chain_of_ifs(tmp_path):
    def function(i, x):
        return gl.switch(i, [lambda x: x + 1, lambda x: x * 2, lambda x: x.flip(0)], (x,))

    x = gl.tensor([1.0, 2.0])
    export(function, (gl.tensor(1), x), tmp_path / "m.onnx")
    for i in (0, 1, 2):
        (got,) = run(tmp_path / "m.onnx", i=np.array(i), x=x.numpy())
        np.testing.assert_array_equal(got, function(gl.tensor(i), x).numpy())


def test_while_loop_is_a_loop(tmp_path):
    limit = gl.tensor(100.0)

    def function(x):
        return gl.while_loop(lambda i, x: x.sum() < limit, lambda i, x: (i + 1, x * 2), (gl.tensor(0), x))

    export(function, gl.tensor([1.0, 2.0]), tmp_path / "m.onnx")
    assert "Loop" in kinds(tmp_path / "m.onnx")
    for value in ([1.0, 2.0], [60.0, 70.0], [0.5, 0.1]):
        count, x = run(tmp_path / "m.onnx", x=np.array(value, np.float32))
        want = function(gl.tensor(value))
        assert count == want[0].item()
        np.testing.assert_array_equal(x, want[1].numpy())


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_a_scan(tmp_path, reverse):
    gl.manual_seed(0)
    cell = nn.GRUCell(3, 4)

    def function(xs, h):
        def step(h, x):
            h = cell(x, h)
            return h, h.sum(1)

        return gl.scan(step, h, xs, reverse=reverse)

    xs, h = gl.randn(5, 2, 3), gl.zeros(2, 4)
    export(function, (xs, h), tmp_path / "m.onnx")
    assert "Scan" in kinds(tmp_path / "m.onnx")
    found = export(function, (xs, h), tmp_path / "m.onnx", dynamic={"xs": ["time", "batch", None], "h": ["batch", None]})
    assert found.inputs["xs"][0].expr == "time" and len(found.sizes) == 1


# ---------------------------------------------------------------- models


def test_models(tmp_path):
    gl.manual_seed(0)
    resnet = resnet20().eval()
    found = export(resnet, gl.randn(2, 3, 32, 32), tmp_path / "m.onnx")
    operators = kinds(tmp_path / "m.onnx")
    assert operators.count("Conv") == operators.count("BatchNormalization") == 19 and found.deviation < 1e-4
    names = {i.name for i in onnx.load(str(tmp_path / "m.onnx")).graph.initializer}
    assert {n for n, _ in resnet.named_parameters()} <= names
    gpt = GPT(GPTConfig(vocab_size=11, block_size=12, n_layer=2, n_head=2, n_embd=8)).eval()
    export(gpt, gl.randint(0, 11, (2, 6)), tmp_path / "m.onnx", dynamic={0: ["batch", "time"]})
    export(DigitsCNN().eval(), gl.randn(2, 1, 8, 8), tmp_path / "m.onnx", dynamic={0: {0: "batch"}})


def test_half_types(tmp_path):
    for dtype in (gl.float16, gl.bfloat16):
        model = layers().to(dtype)
        found = export(model, gl.randn(2, 4).to(dtype), tmp_path / "m.onnx")
        assert "Runtime" in found.checked_by
    found = export(layers().double(), gl.randn(2, 4).double(), tmp_path / "m.onnx")
    assert found.deviation < 1e-7


def test_what_roundings_move_is_allowed_and_no_more(tmp_path):
    """A logarithm of what nearly cancels: results of two runtimes differ by as much as roundings move them."""
    generator = np.random.default_rng(0)
    model = lambda x: ((x - x.mean(1, keepdim=True)).abs() + 1e-10).log()
    x = gl.tensor((1 + 1e-6 * generator.normal(size=(4, 64))).astype(np.float32))
    export(model, x, tmp_path / "m.onnx", check=False)
    export(lambda x: x * 3, x, tmp_path / "plain.onnx", check=False)
    for name, off, allowed in [("m", 2e-4, True), ("m", 1e-2, False), ("plain", 2e-4, False)]:
        path = tmp_path / f"{name}.onnx"
        output = [o.name for o in onnx.load(str(path)).graph.output]
        want = run(path, x=x.numpy())[0]
        case = checking.Case({"x": x.numpy()}, [want + off * np.abs(want).max()], "")
        if allowed:
            found = checking.verify(path, [case], output, set(), None)
            assert "as near as roundings" in found.runner and found.deviation == pytest.approx(off, rel=1e-2)
            with pytest.raises(ExportError, match=r"0\.0001 is allowed"):
                checking.verify(path, [case], output, set(), 1e-4)  # a tolerance that was asked for holds
        else:
            with pytest.raises(ExportError, match=r"deviates by .*0\.0001 is allowed"):
                checking.verify(path, [case], output, set(), None)

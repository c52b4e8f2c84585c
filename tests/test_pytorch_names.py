"""What scripts written for PyTorch call and import, with the arguments they give: taken, and meant as there."""

import gzip
import importlib
import io
import json

import pytest

import gradlab as gl
from gradlab import nn

IMPORTS = {
    "gradlab.nn.modules": "Module Linear Conv2d",
    "gradlab.nn.modules.batchnorm": "_BatchNorm BatchNorm2d",
    "gradlab.nn.modules.container": "Sequential ModuleList",
    "gradlab.nn.modules.loss": "_Loss CrossEntropyLoss",
    "gradlab.nn.modules.normalization": "LayerNorm GroupNorm",
    "gradlab.nn.modules.rnn": "LSTM GRUCell RNNBase",
    "gradlab.nn.modules.utils": "_single _pair _triple _ntuple",
    "gradlab.optim.lr_scheduler": "_LRScheduler LRScheduler",
    "gradlab.random": "manual_seed fork_rng get_rng_state",
    "gradlab.utils.data.dataloader": "DataLoader default_collate get_worker_info",
    "gradlab.utils.dlpack": "from_dlpack to_dlpack",
    "gradlab.utils.hooks": "RemovableHandle",
}


@pytest.mark.parametrize("module", IMPORTS)
def test_imports(module):
    found = importlib.import_module(module)
    for name in IMPORTS[module].split():
        assert getattr(found, name)
    if module == "gradlab.nn.modules":
        with pytest.raises(AttributeError, match="Linaer"):
            _ = found.Linaer


def test_pairs():
    utils = importlib.import_module("gradlab.nn.modules.utils")
    assert utils._pair(3) == (3, 3)
    assert utils._triple([1, 2, 3]) == (1, 2, 3)


def test_a_gradient_penalty():
    x = gl.tensor([1.0, 2.0], requires_grad=True)
    (g,) = gl.autograd.grad(outputs=(x**3).sum(), inputs=x, create_graph=True, retain_graph=True, only_inputs=True)
    g.norm().backward()
    assert x.grad is not None
    (unused,) = gl.autograd.grad(x.sum(), [gl.ones(1, requires_grad=True)], None, None, False, True, True)  # allow_unused is the seventh
    assert unused is None


class TestProfiler:
    def test_the_usual_snippet(self, tmp_path):
        from_torch = gl.profiler.ProfilerActivity
        kwargs = {"activities": [from_torch.CPU, from_torch.CUDA], "record_shapes": True, "profile_memory": True, "with_stack": True}
        with gl.profiler.profile(**kwargs) as prof, gl.profiler.record_function("forward"):
            gl.ones(3).exp()
        table = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10)
        assert "forward" in table
        event = next(e for e in prof.key_averages() if e.key == "exp")
        assert event.self_cpu_time_total == event.cpu_time_total > 0
        assert event.cuda_time_total == 0
        prof.export_chrome_trace(tmp_path / "trace.json.gz")
        assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
        with pytest.raises(TypeError, match="ProfilerActivity"):
            gl.profiler.profile(activities=["cpu"])

    def test_a_schedule(self):
        ready = []
        plan = gl.profiler.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
        with gl.profiler.profile(schedule=plan, on_trace_ready=lambda p: ready.append([e.name for e in p.events()])) as prof:
            for step in range(10):
                (gl.exp if step % 2 else gl.sin)(gl.ones(2))
                prof.step()
        assert [[n for n in names if n in ("exp", "sin")] for names in ready] == [["exp", "sin"], ["exp", "sin"]]

    def test_a_block_that_ends_while_recording(self):
        ready = []
        prof = gl.profiler.profile(on_trace_ready=ready.append)
        prof.start()
        gl.ones(2).exp()
        prof.stop()
        assert ready == [prof]
        with gl.profiler.profile(schedule=gl.profiler.schedule(wait=5, warmup=0, active=1), on_trace_ready=ready.append):
            gl.ones(2).exp()
        assert ready == [prof]
        with pytest.raises(ValueError, match="active"):
            gl.profiler.schedule(wait=1, warmup=1, active=0)


class TestJit:
    def test_marks(self):
        assert gl.jit.ignore(len) is gl.jit.ignore()(len) is gl.jit.unused(len) is gl.jit.export(len) is len
        assert gl.jit.annotate(list, [1]) == [1]
        assert not gl.jit.is_scripting()
        seen = []
        gl.jit.trace(lambda x: (seen.append(gl.jit.is_tracing()), x * 2)[1], gl.ones(1), check_trace=False, strict=False)
        assert seen == [True]
        assert not gl.jit.is_tracing()

    def test_steps_that_need_nothing(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        with pytest.raises(RuntimeError, match="eval"):
            gl.jit.freeze(model)
        traced = gl.jit.trace_module(model.eval(), {"forward": gl.ones(1, 2)}, check_inputs=[gl.zeros(1, 2)])
        assert gl.jit.optimize_for_inference(gl.jit.freeze(traced)) is traced
        with pytest.raises(NotImplementedError, match="forward"):
            gl.jit.trace_module(model, {"other": gl.ones(1)})

    def test_files_in_memory(self):
        program = gl.jit.trace(lambda x: x + 1, gl.ones(2))
        file = io.BytesIO()
        gl.jit.save(program, file)
        file.seek(0)
        assert gl.jit.load(file, map_location="cpu")(gl.zeros(2)).tolist() == [1.0, 1.0]
        with pytest.raises(TypeError, match="open for writing"):
            program.save(3)


def test_onnx_export_with_pytorchs_arguments(tmp_path):
    pytest.importorskip("onnxruntime")
    model, path = nn.Linear(2, 3).eval(), tmp_path / "m.onnx"
    found = gl.onnx.export(
        model, (gl.ones(4, 2),), path, export_params=True, opset_version=20, do_constant_folding=True, input_names=["x"],
        output_names=["y"], dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}}, verbose=False, dynamo=True,
    )  # fmt: skip
    assert str(found.outputs["y"][0]) == "batch"
    found = gl.onnx.export(model=model, args=gl.ones(4, 2), f=path, input_names=["x"], dynamic_axes={"x": [0]})
    assert str(found.inputs["x"][0]) == "x_dynamic_axes_1"
    with pytest.raises(ValueError, match="export_params"):
        gl.onnx.export(model, gl.ones(4, 2), path, export_params=False)
    with pytest.raises(TypeError, match="path"):
        gl.onnx.export(model, gl.ones(4, 2))


def test_devices_that_are_not_there():
    assert not gl.backends.mps.is_available()
    assert not gl.backends.mps.is_built()
    if gl.cuda.is_available():
        return
    assert not gl.accelerator.is_available()
    assert gl.accelerator.current_accelerator() is None
    assert gl.accelerator.device_count() == gl.cuda.memory_allocated() == gl.cuda.max_memory_allocated() == gl.cuda.memory_reserved() == 0
    gl.cuda.empty_cache()
    gl.cuda.reset_peak_memory_stats()
    assert gl.cuda.get_rng_state_all() == []
    gl.cuda.set_rng_state_all([])
    assert not gl.cuda.is_bf16_supported()
    for call in (gl.cuda.synchronize, gl.cuda.get_device_properties, gl.accelerator.synchronize, gl.cuda.memory_summary):
        with pytest.raises(RuntimeError, match=r"CuPy|GPU|CUDA"):
            call()


def test_settings():
    try:
        gl.backends.cuda.matmul.allow_tf32 = True
        assert gl.get_float32_matmul_precision() == "high"
        assert gl.backends.cuda.matmul.allow_tf32
    finally:
        gl.backends.cuda.matmul.allow_tf32 = False
    assert gl.get_float32_matmul_precision() == "highest"


def test_threads(monkeypatch):
    before = gl.get_num_threads()
    monkeypatch.setenv("GRADLAB_NUM_THREADS", str(before))
    try:
        gl.set_num_threads(1)
        assert gl.get_num_threads() == 1
        shares = importlib.import_module("gradlab.graph.executables.numpy.row_threads")
        assert shares.threads() == 1
        gl.set_num_threads(2)
        assert shares.threads() == 2
    finally:
        gl.set_num_threads(before)
    with pytest.raises(RuntimeError, match="at least 1"):
        gl.set_num_threads(0)
    with pytest.raises(TypeError, match="integer"):
        gl.set_num_threads(1.5)


class Renamed(nn.Module):
    """Loads what an older version saved, and saves a note."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(gl.zeros(2))

    def _load_from_state_dict(self, state_dict, prefix, *args):
        if prefix + "gain" in state_dict:
            state_dict[prefix + "scale"] = state_dict.pop(prefix + "gain")
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "note"] = gl.ones(1)


class ByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = nn.Linear(1, 1)
        self.values = []

    def _load_from_state_dict(self, state_dict, prefix, *args):
        self.values = state_dict[prefix + "values"].tolist()


def test_modules_that_load_in_their_own_way():
    model = nn.Sequential(Renamed())
    given = {"0.gain": gl.ones(2)}
    assert str(model.load_state_dict(given)) == "<All keys matched successfully>"
    assert model[0].scale.tolist() == [1.0, 1.0]
    assert list(given) == ["0.gain"]
    assert list(model.state_dict()) == ["0.scale", "0.note"]
    with pytest.raises(RuntimeError, match="shape"):
        model.load_state_dict({"0.gain": gl.ones(3)})
    by_hand = ByHand()
    by_hand.load_state_dict({"values": gl.tensor([1, 2]), "child.weight": gl.ones(1, 1), "child.bias": gl.ones(1)})
    assert by_hand.values == [1, 2]
    more = {"child.weight": gl.ones(1, 1), "child.bias": gl.ones(1), "child.more": gl.ones(1)}
    with pytest.raises(RuntimeError, match="unexpected"):
        by_hand.load_state_dict({"values": gl.tensor([1]), **more})
    with pytest.raises(RuntimeError, match="load_state_dict"):
        nn.Linear(1, 1)._load_from_state_dict({}, "", {}, True, [], [], [])


class TestAssertClose:
    def test_what_is_close(self):
        close = gl.testing.assert_close
        close(gl.ones(2), gl.ones(2) + 1e-6)
        close({"a": [1, 2.0], "b": (gl.ones(1), None)}, {"a": [1, 2.0], "b": (gl.ones(1), None)})
        close(gl.tensor([1, 2]).numpy(), gl.tensor([1, 2]))
        close(gl.tensor(float("nan")), gl.tensor(float("nan")), equal_nan=True)
        close(gl.tensor([float("inf")]), gl.tensor([float("inf")]))
        close(gl.ones(2, dtype=gl.bfloat16), gl.ones(2, dtype=gl.bfloat16) * 1.01)
        close(gl.ones(2), gl.ones(2, dtype=gl.float64), check_dtype=False)

    @pytest.mark.parametrize(
        ("a", "b", "text"),
        [
            (gl.ones(2), gl.ones(3), "'shape'"),
            (gl.ones(2), gl.ones(2, dtype=gl.float64), "'dtype'"),
            (gl.tensor([1, 2, 4]), gl.tensor([1, 2, 3]), "Tensors are not equal!"),
            (gl.tensor([1.0, float("nan")]), gl.tensor([1.0, 2.0]), "1 / 2"),
            (gl.tensor([float("inf")]), gl.tensor([1.0]), "Greatest absolute difference: inf"),
            (1.0, 1.1, "Scalars are not close!"),
            ([gl.ones(1)], [gl.ones(1), gl.ones(1)], "lengths"),
            ({"a": 1}, {"b": 1}, "keys"),
            ({"a": [1.0]}, {"a": [2.0]}, r"item \['a'\]\[0\]"),
            (gl.tensor([True]), gl.tensor([False]), "not equal"),
        ],
    )
    def test_what_is_not(self, a, b, text):
        with pytest.raises(AssertionError, match=text):
            gl.testing.assert_close(a, b)

    def test_other_ways(self):
        with pytest.raises(AssertionError, match=r"^my text$"):
            gl.testing.assert_close(1, 2, msg="my text")
        with pytest.raises(AssertionError, match=r"^ctx: Scalars"):
            gl.testing.assert_close(1, 2, msg=lambda m: "ctx: " + m)
        with pytest.raises(ValueError, match="both or neither"):
            gl.testing.assert_close(1, 2, rtol=1)
        with pytest.raises(TypeError, match="cannot compare"):
            gl.testing.assert_close("a", 1)

    def test_make_tensor(self):
        for dtype in (gl.float32, gl.bfloat16, gl.int8, gl.uint8, gl.bool):
            x = gl.testing.make_tensor(50, 4, dtype=dtype, exclude_zero=dtype != gl.bool)
            assert x.dtype == dtype
            assert dtype == gl.bool or (x != 0).all()
        x = gl.testing.make_tensor((3, 4), dtype=gl.float64, low=2, high=3, requires_grad=True, noncontiguous=True)
        assert x.is_leaf
        assert not x.is_contiguous()
        assert ((x >= 2) & (x < 3)).all()
        with pytest.raises(ValueError, match="below"):
            gl.testing.make_tensor(2, dtype=gl.float32, low=3, high=3)




def test_assert_close_of_all_layouts_and_kinds():
    close, eye = gl.testing.assert_close, gl.eye(2)
    meta = gl.ones(1, device="meta")
    for x, y in ((eye.to_sparse(), eye.to_sparse()), (eye.to_sparse_csr(), eye.to_sparse_csr()), (meta, meta.clone()), (1, 1)):
        close(x, y)
    close(eye.to_sparse(), eye, check_layout=False)
    close(1, 1.0, check_dtype=False)
    for x, y, said in ((eye.to_sparse(), 2 * eye.to_sparse(), "not close"), (eye.to_sparse(), eye, "layout"), (1, 1.0, "types"),
                       (meta, gl.ones(2, device="meta"), "shape")):  # fmt: skip
        with pytest.raises(AssertionError, match=said):
            close(x, y)

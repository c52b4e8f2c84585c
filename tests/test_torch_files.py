"""Files in PyTorch's format: those that it wrote, and ours; what stands beside the tensors; whole modules where they are asked for."""

import argparse
import collections
import copy
import datetime
import io
import pathlib
import pickle
import types
import zipfile

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.dtype import ALL
from gradlab.serialization import UnsafeFileError, add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from gradlab.utils.serialization import from_bytes, set_default_pickle

from repository import ROOT

FILES = ROOT / "tests" / "torch_files"
each_file = pytest.mark.parametrize("name", ["archive", "stream", "protocol4"])


def again(value, **options):
    file = io.BytesIO()
    gl.save(value, file, format="torch", **options)
    return from_bytes(file.getvalue())


def same(a, b):
    if isinstance(a, gl.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and gl.equal(a, b) and a.requires_grad == b.requires_grad
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple, collections.deque)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


# ---------------------------------------------------------------- written by PyTorch


@each_file
def test_what_pytorch_wrote(name):
    found = gl.load(FILES / f"{name}.pt")
    assert (found["epoch"], found["arch"], found["best"].item()) == (3, "mlp", 0.5)
    assert found["args"] == argparse.Namespace(lr=0.1, data=["a", "b"], resume=None)
    assert isinstance(found["parameter"], nn.Parameter) and not found["parameter"].requires_grad
    assert found["grad"].requires_grad and found["grad"].is_leaf
    base, part, turned, repeated = found["views"]
    assert (part.tolist(), turned.tolist(), repeated.shape) == (base[1:, ::2].tolist(), base.mT.tolist(), (2, 3, 4))
    base.zero_()  # one memory, as there
    assert not part.any() and not turned.any()
    for dtype, x in found["dtypes"].items():
        assert str(x.dtype).partition(".")[2] == dtype.partition(".")[2]
        assert x.tolist() == ([False, True, True] if x.dtype == gl.bool else [0, 1, 2])
    assert same(found["numpy"][0], np.arange(6).reshape(2, 3)) and found["numpy"][1] == np.float32(1.5)
    assert found["numpy"][2].tolist() == [1, 2] and found["numpy"][3].tolist() == [[1, 0], [0, 1]]
    plain = [None, True, 2, -(2**40), 10**30, 1.5, float("inf"), "text ü", b"bytes\xff", (1, (2,)), {1, 2}, frozenset({3}), 1j, slice(1, 2)]
    assert same(found["plain"], plain)
    assert same(found["torch"], (gl.float32, gl.device("cpu"), gl.Size([2, 3])))
    ordered, default, path, numbers, raw = found["more"]
    assert (ordered, default["b"], path, numbers, raw) == ({"a": 1}, [], pathlib.PurePosixPath("a/b"), range(3), bytearray(b"x"))
    assert found["empty"].shape == (0, 3) and found["sparse"].to_dense().tolist() == gl.eye(3).tolist()


@each_file
def test_training_goes_on_from_pytorchs_checkpoint(name):
    found = gl.load(FILES / f"{name}.pt")
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model.load_state_dict(found["state_dict"])
    optimizer = gl.optim.AdamW([{"params": model[0].parameters(), "lr": 0.5}, {"params": model[2].parameters()}])
    scheduler = gl.optim.lr_scheduler.StepLR(optimizer, 2)
    optimizer.load_state_dict(found["optimizer"])
    scheduler.load_state_dict(found["scheduler"])
    assert optimizer.param_groups[0]["amsgrad"] and optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    assert scheduler.last_epoch == 3
    weight = model[0].weight
    state = optimizer.state[weight]
    assert float(state["step"]) == 3 and gl.equal(state["exp_avg"], found["optimizer"]["state"][0]["exp_avg"])
    before = weight.detach().clone()
    model(gl.randn(5, 3)).sum().backward()
    optimizer.step()
    assert float(state["step"]) == 4 and not gl.equal(before, weight)


def test_where_tensors_go():
    calls = []
    path = FILES / "archive.pt"
    for place in (
        None, "cpu", gl.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage,
        lambda storage, location: calls.append(location),
        lambda storage, location: storage.to(dtype=gl.float64 if storage.is_floating_point() else None),
    ):  # fmt: skip
        found = gl.load(path, map_location=place)
    assert set(calls) == {"cpu"} and found["best"].dtype == gl.float64
    if gl.cuda.is_available():
        file = io.BytesIO()
        gl.save({"x": gl.ones(2, device="cuda"), "y": gl.zeros(1)}, file, format="torch")
        both = ["cpu", "cpu"]
        for place, expected in ((None, ["cuda", "cpu"]), ("cpu", both), ({"cuda:0": "cpu"}, both), ("cuda", ["cuda", "cuda"])):
            file.seek(0)
            assert [t.device.type for t in gl.load(file, place).values()] == expected
            file.seek(0)


# ---------------------------------------------------------------- written by us


BOX = gl.tensor([[1.0, 2.0], [3.0, 4.0]])
VALUES = [
    {"epoch": 3, "args": argparse.Namespace(a=1, b=[2.0, "c"]), "model": collections.OrderedDict(w=BOX, b=BOX.mT)},
    [None, True, 3, -(10**30), 0.1, float("inf"), "ü", b"\xff", b"", bytearray(b"x"), (1, (2,)), {1}],
    [frozenset({2}), 1j, slice(1, None, 2), range(3)],
    {3: "int", (1, "a"): 2, None: 0, 1.5: 3, True: 1},
    [gl.float32, gl.bfloat16, gl.device("cpu"), gl.device("cuda:1") if gl.cuda.is_available() else gl.device("cpu"), BOX.shape],
    [np.arange(6).reshape(2, 3), np.array(3.5), np.float32(1.5), np.bool_(True), np.zeros((0, 3)), np.eye(2).T, np.array(["a"])],
    [collections.Counter("aab"), collections.deque([1, BOX], 3), datetime.datetime(2020, 1, 2), datetime.timedelta(3)],
    [pathlib.PurePosixPath("a/b"), types.SimpleNamespace(x=1)],
    [BOX[1:], BOX[:, 0], gl.zeros(0, 2), gl.tensor(1.0), gl.ones(2, requires_grad=True), nn.Parameter(gl.ones(1), requires_grad=False)],
    *[gl.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype) for dtype in ALL],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_round_trip(value, protocol):
    assert same(value, again(value, pickle_protocol=protocol))


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_sparse_tensors(layout):
    x = gl.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]])
    sparse = getattr(x, f"to_sparse_{layout}")() if layout != "coo" else x.to_sparse()
    found = again({"a": sparse, "n": 1})["a"]
    assert found.layout is sparse.layout and gl.equal(found.to_dense(), x)
    twice = again(gl.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 3)))
    assert not twice.is_coalesced() and twice.to_dense()[0, 1] == 3


def test_strides_and_tensors_without_values():
    x = gl.randn(2, 3, 4, 5)
    for y in (x, x.to(memory_format=gl.channels_last), x.permute(3, 1, 0, 2), x[:, 1:, ::2], x[:1].expand(3, 3, 4, 5)):
        found = again(y)
        assert gl.equal(found, y) and (found.stride() == y.stride() or found.is_contiguous())
    assert again(x.to(memory_format=gl.channels_last)).stride() == (60, 1, 15, 3)
    meta = again(gl.empty(2, 3, device="meta", dtype=gl.bfloat16))
    assert (meta.device.type, meta.shape, meta.dtype) == ("meta", (2, 3), gl.bfloat16)


def test_a_defaultdict_keeps_its_factory():
    found = again(collections.defaultdict(list, a=[1]))
    assert found["b"] == [] and found["a"] == [1]


def test_shared_tensors_are_shared_again():
    found = again({"a": BOX, "nested": [BOX, BOX.clone()], "same memory": BOX.detach()})
    assert found["a"] is found["nested"][0] and found["nested"][1] is not found["a"]
    found["a"].zero_()
    assert not found["same memory"].any() and found["nested"][1].any()
    loop: list = [BOX]
    loop.append(loop)
    assert (made := again(loop))[1] is made


def test_equal_objects_make_equal_files():
    files = set()
    for _ in range(3):
        gl.save({"x": gl.ones(3), "n": 1}, file := io.BytesIO(), format="torch")
        files.add(file.getvalue())
    assert len(files) == 1


@pytest.mark.parametrize(
    ("name", "torch"),
    [("a.pt", True), ("a.pth", True), ("best.pth.tar", True), ("a.ckpt", True), ("a.safetensors", False), ("a", False), ("a.x", False)],
)
def test_the_name_says_the_format(tmp_path, name, torch):
    path = tmp_path / name
    gl.save({"x": BOX}, path)
    assert zipfile.is_zipfile(path) == torch and same(gl.load(path), {"x": BOX})
    gl.save({"x": BOX}, path, format="torch")
    assert zipfile.is_zipfile(path)
    if name.endswith(".safetensors"):
        with pytest.raises(TypeError, match="'s' is a builtins"):
            gl.save({"s": {1}}, path)
    else:
        gl.save({"s": {1}}, path)
        assert zipfile.is_zipfile(path) and gl.load(path) == {"s": {1}}


def test_arguments_of_pytorchs(tmp_path):
    path = tmp_path / "a.pt"
    gl.save({"x": 1}, path, pickle, 2, False)
    assert gl.load(path, "cpu", weights_only=True, mmap=True) == {"x": 1}
    with pytest.raises(ValueError, match="safetensors"):
        gl.save(1, path, format="json")
    with pytest.raises(NotImplementedError, match="pickle_module=zipfile"):
        gl.save(1, path, zipfile)
    with pytest.raises(RuntimeError, match="pickle_module"):
        gl.load(path, pickle_module=pickle, weights_only=True)
    with pytest.raises(ValueError, match="deep"):
        deep: list = []
        for _ in range(100_000):
            deep = [deep]
        gl.save(deep, path)


# ---------------------------------------------------------------- objects of any class


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.BatchNorm1d(3))
        self.register_buffer("scale", gl.full((1,), 2.0), persistent=False)

    def forward(self, x):
        return self.layers(x) * self.scale


class Slotted:
    __slots__ = ("a",)


def test_whole_modules(tmp_path):
    path, model = tmp_path / "model.pt", Net().eval()
    x = gl.randn(4, 2)
    for value in (model, {"model": model, "f": copy.deepcopy}):
        with pytest.raises(TypeError, match=r"state_dict\(\).*pickle=True"):
            gl.save(value, path)
    assert not path.exists()
    with pytest.warns(gl.GradlabWarning, match=r"test_torch_files\.Net.*runs code"):
        gl.save(model, path, pickle=True)
    with pytest.raises(UnsafeFileError, match=r"names \S*test_torch_files.Net.*add_safe_globals\(\[Net\]\).*weights_only=False"):
        gl.load(path)
    with pytest.raises(pickle.UnpicklingError):
        gl.load(path, weights_only=True)
    with pytest.warns(gl.GradlabWarning, match="weights_only=False"):
        found = gl.load(path, weights_only=False)
    assert type(found) is Net and gl.equal(found(x), model(x)) and isinstance(found.layers[0].weight, nn.Parameter)
    assert list(found.state_dict()) == list(model.state_dict()) and not found.training
    found.train()(x).sum().backward()
    assert found.layers[0].weight.grad is not None
    with pytest.raises(TypeError, match="top of a module"):
        gl.save({"m": model, "f": lambda: 0}, path, pickle=True)


def test_allowed_classes(tmp_path):
    path = tmp_path / "model.pt"
    with pytest.warns(gl.GradlabWarning):
        gl.save([Net(), Slotted], path, pickle=True)
    needed = gl.serialization.get_unsafe_globals_in_checkpoint(path)
    assert {name.rpartition(".")[2] for name in needed} == {"Net", "Sequential", "Linear", "ReLU", "BatchNorm1d", "Slotted"}
    with safe_globals([Net, nn.Sequential, nn.Linear, nn.ReLU, nn.BatchNorm1d, (Slotted, f"{__name__}.Slotted")]):
        found, kind = gl.load(path)
        assert kind is Slotted and found.eval()(gl.ones(1, 2)).shape == (1, 3)
    assert get_safe_globals() == []
    add_safe_globals([Net])
    try:
        assert get_safe_globals() == [Net]
        with pytest.raises(UnsafeFileError):
            gl.load(path)
    finally:
        clear_safe_globals()
    with pytest.raises(TypeError, match="classes and functions"):
        add_safe_globals(["os.system"])


def test_optimizers_and_schedulers_whole(tmp_path):
    path, model = tmp_path / "all.pt", nn.Linear(2, 1)
    optimizer = gl.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = gl.optim.lr_scheduler.StepLR(optimizer, 2)
    model(gl.ones(1, 2)).sum().backward()
    optimizer.step()
    scheduler.step()
    with pytest.warns(gl.GradlabWarning):
        gl.save({"model": model, "optimizer": optimizer, "scheduler": scheduler}, path, pickle=True)
    with pytest.warns(gl.GradlabWarning):
        found = gl.load(path, weights_only=False)
    assert found["optimizer"].param_groups[0]["params"][0] is found["model"].weight
    assert found["scheduler"].optimizer is found["optimizer"]


def test_scripts_of_pytorchs_save_modules_without_being_asked(tmp_path):
    set_default_pickle(True)
    try:
        with pytest.warns(gl.GradlabWarning, match="runs code"):
            gl.save(Net(), tmp_path / "a.pt")
        with pytest.raises(TypeError, match="pickle=True"):
            gl.save(Net(), tmp_path / "a.pt", pickle=False)
    finally:
        set_default_pickle(False)


def test_plain_files_need_no_trust(recwarn):
    gl.load(FILES / "archive.pt", weights_only=False)
    assert not recwarn.list

"""How PyTorch's older scripts write things: types of tensors by name, shapes of a class of their own, names that were renamed since."""

import copy
import operator
import pickle
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.tensor.typed_tensors import CPU_TYPES, CUDA_TYPES

RENAMED = "constant dirac eye kaiming_normal kaiming_uniform normal orthogonal sparse uniform xavier_normal xavier_uniform"


class TestSize:
    def test_shapes_stay_of_their_class(self):
        size = gl.ones(2, 3, 4).shape
        assert size == (2, 3, 4) == tuple(size)
        assert hash(size) == hash((2, 3, 4))
        for found, value in (
            (size[1:], (3, 4)), (size[::-1], (4, 3, 2)), (operator.add(size, (5,)), (2, 3, 4, 5)),
            (operator.add((5,), size), (5, 2, 3, 4)), (size[:1] * 2, (2, 2)), (2 * size[:1], (2, 2)), (gl.ones(2).size(), (2,)),
            (gl.Size([np.int64(2), gl.tensor(3)]), (2, 3)), (gl.Size(), ()),
            (copy.deepcopy(size), size), (pickle.loads(pickle.dumps(size)), size),
        ):  # fmt: skip
            assert type(found) is gl.Size
            assert found == value
        assert type(size[0]) is int
        assert size.numel() == 24
        assert size[3:].numel() == 1

    def test_what_is_no_size(self):
        with pytest.raises(TypeError, match="item 1 is of type float"):
            gl.Size([1, 2.0])
        with pytest.raises(TypeError):
            operator.add(gl.Size([1]), [2])

    def test_in_a_compiled_function(self):
        kept = gl.ones(2, 3).shape

        @gl.compile
        def f(x, size):
            rows = x.shape[:1]
            return x.reshape(operator.add(rows, (-1,))).expand(size) + (1 if x.shape == kept else 0), x.shape[1:], rows.numel()

        for _ in range(3):
            value, rest, rows = f(gl.ones(2, 3), gl.Size([2, 3]))
            assert value.tolist() == [[2.0] * 3] * 2
            assert (rest, type(rest), rows) == ((3,), gl.Size, 2)
        assert f(gl.ones(1, 3), gl.Size([2, 3]))[0].tolist() == [[1.0] * 3] * 2

    def test_it_is_a_shape_to_the_old_constructors(self):
        size = gl.ones(2, 3).shape
        for made in (gl.Tensor(size), gl.FloatTensor(size), gl.ones(1).new(size), gl.Tensor(size=(2, 3)), gl.ones(1).new(size=(2, 3))):
            assert made.shape == size
        assert gl.Tensor(tuple(size)).tolist() == [2.0, 3.0]


class TestTypes:
    @pytest.mark.parametrize("name", [name for name in CPU_TYPES if not name.startswith("Complex")])  # PyTorch has no class of these
    def test_each(self, name):
        kind = getattr(gl, name)
        assert kind([1, 0]).tolist() == [1, 0]
        assert kind([1, 0]).dtype is kind.dtype
        assert kind(2, 3).shape == (2, 3)
        assert kind().shape == (0,)
        assert kind(np.array([1, 0])).type() == f"torch.{name}"
        x = kind([1])
        assert kind(x).data_ptr() == x.data_ptr()
        assert x.new([0]).dtype is kind.dtype
        for other in CPU_TYPES.values():
            assert isinstance(x, other) is (other is kind)
        for other in CUDA_TYPES.values():
            assert not isinstance(x, other)
        for given in (kind, kind.dtype, f"torch.{name}", f"gradlab.{name}", name):
            assert isinstance(gl.tensor([1.0]).type(given), kind)
        assert getattr(gl.cuda, name).dtype is kind.dtype
        assert pickle.loads(pickle.dumps(kind)) is kind

    def test_values_sizes_and_what_is_neither(self):
        assert gl.LongTensor([[1, 2], [3, 4]]).shape == (2, 2)
        assert gl.FloatTensor(range(3)).tolist() == [0.0, 1.0, 2.0]
        assert isinstance(nn.Parameter(gl.ones(2)), gl.FloatTensor)
        assert not isinstance(3, gl.FloatTensor)
        with pytest.raises(TypeError, match="neither a size"):
            gl.FloatTensor(3.5)
        with pytest.raises(TypeError, match=r"x\.type"):
            gl.FloatTensor(gl.ones(2, dtype=gl.int64))
        with pytest.raises(RuntimeError, match="cpu"):
            gl.FloatTensor(2, device="cuda")

    def test_type_takes_the_class(self):
        assert gl.tensor([1]).type(gl.Tensor).dtype is gl.float32
        assert gl.ones(2).new().shape == (0,)
        assert gl.ones(2).new(3, device="cpu").tolist() == [0.0] * 3

    def test_the_default_type(self):
        try:
            gl.set_default_tensor_type("torch.DoubleTensor")
            assert gl.Tensor([1]).dtype is gl.ones(1).dtype is gl.float64
            gl.set_default_tensor_type(gl.FloatTensor)
            assert gl.ones(1).dtype is gl.float32
        finally:
            gl.set_default_dtype(gl.float32)
        with pytest.raises(TypeError, match="type of tensors"):
            gl.set_default_tensor_type("torch.Foo")


@pytest.mark.parametrize("mask", [gl.ByteTensor([1, 0, 1]), np.array([1, 0, 1], np.uint8)])
def test_masks_of_bytes(mask):
    x = gl.tensor([1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="uint8"):
        assert x[mask].tolist() == [1.0, 3.0]
    with pytest.warns(UserWarning, match="uint8"):
        x[mask] = 0
    assert x.tolist() == [0.0, 2.0, 0.0]
    with pytest.warns(UserWarning, match="uint8"):
        assert gl.where(gl.as_tensor(mask), x, 5.0).tolist() == [0.0, 5.0, 0.0]


@pytest.mark.parametrize("name", RENAMED.split())
def test_initial_values_by_their_older_names(name):
    arguments = {"constant": (2.0,), "sparse": (0.5,)}.get(name, ())
    old, new = (gl.zeros(4, 4, *([1] if name == "dirac" else [])) for _ in range(2))
    gl.manual_seed(0)
    with pytest.warns(FutureWarning, match=f"{name}_"):
        assert getattr(nn.init, name)(old, *arguments) is old
    gl.manual_seed(0)
    getattr(nn.init, f"{name}_")(new, *arguments)
    assert gl.equal(old, new)


def test_gradients_are_clipped_under_the_older_name():
    x = gl.ones(4, requires_grad=True)
    x.sum().backward()
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        assert nn.utils.clip_grad_norm([x], 1.0) == 2.0
    assert x.grad.norm() <= 1


# Of each loss what stands before size_average.
LOSSES: dict[str, tuple] = {
    **dict.fromkeys(("KLDivLoss", "L1Loss", "MSELoss", "MultiLabelMarginLoss", "SmoothL1Loss", "SoftMarginLoss"), ()),
    "BCELoss": (None,), "BCEWithLogitsLoss": (None,), "CosineEmbeddingLoss": (0.0,), "CrossEntropyLoss": (None,),
    "HingeEmbeddingLoss": (1.0,), "MarginRankingLoss": (0.0,), "MultiLabelSoftMarginLoss": (None,), "MultiMarginLoss": (1, 1.0, None),
    "NLLLoss": (None,), "PoissonNLLLoss": (True, False), "TripletMarginLoss": (1.0, 2.0, 1e-6, False),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses_know_the_older_words_for_reduction(name):
    loss = getattr(nn, name)
    for arguments, words, meant in (
        ((), {"size_average": False}, "sum"), ((), {"reduce": False}, "none"), ((), {"size_average": True, "reduce": True}, "mean"),
        ((*LOSSES[name], False), {}, "sum"),
    ):  # fmt: skip
        with pytest.warns(UserWarning, match=f"reduction='{meant}'"):
            assert loss(*arguments, **words).reduction == meant


def test_containers_keep_free_places():
    listed = nn.ModuleList([nn.Linear(1, 1), None])
    assert (len(listed), listed[1], len(list(listed.children()))) == (2, None, 1)
    listed[1] = nn.ReLU()
    assert isinstance(listed[1], nn.ReLU)
    assert nn.Sequential(None)[0] is None
    assert "(0): None" in repr(nn.Sequential(None))
    with pytest.raises(TypeError, match="int"):
        nn.ModuleList([3])


def test_nothing_warns_by_itself():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.CrossEntropyLoss(reduction="sum")
        gl.ones(2)[gl.tensor([True, False])]


X, Y, V = gl.tensor([[1.0, 2.0], [3.0, 4.0]]), gl.tensor([[2.0, 1.0], [0.0, 5.0]]), gl.tensor([1.0, 2.0])
B = X[None]
ORDERS = {
    "add": (lambda: gl.add(X, 2, Y), lambda: X.add(2, Y), lambda: X.clone().add_(2, Y), lambda: X + 2 * Y),
    "sub": (lambda: gl.sub(X, 2, Y), lambda: X.sub(2, Y), lambda: X.clone().sub_(2, Y), lambda: X - 2 * Y),
    "addcmul": (lambda: gl.addcmul(X, 2, X, Y), lambda: X.addcmul(2, X, Y), lambda: X.clone().addcmul_(2, X, Y), lambda: X + 2 * X * Y),
    "addcdiv": (lambda: gl.addcdiv(Y, 2, Y, X), lambda: Y.addcdiv(2, Y, X), lambda: Y.clone().addcdiv_(2, Y, X), lambda: Y + 2 * Y / X),
    "addmm": (lambda: gl.addmm(2, X, 3, X, Y), lambda: X.addmm(2, 3, X, Y), lambda: X.clone().addmm_(2, 3, X, Y),
              lambda: 2 * X + 3 * X @ Y),
    "addmm, one factor": (lambda: gl.addmm(2, X, X, Y), lambda: X.addmm(2, X, Y), lambda: X.clone().addmm_(2, X, Y),
                          lambda: 2 * X + X @ Y),
    "addmv": (lambda: gl.addmv(2, V, 3, X, V), lambda: V.addmv(2, 3, X, V), lambda: V.clone().addmv_(2, 3, X, V),
              lambda: 2 * V + 3 * X @ V),
    "addr": (lambda: gl.addr(2, X, 3, V, V), lambda: X.addr(2, 3, V, V), lambda: X.clone().addr_(2, 3, V, V),
             lambda: 2 * X + 3 * gl.outer(V, V)),
    "baddbmm": (lambda: gl.baddbmm(2, B, B, B), lambda: B.baddbmm(2, B, B), lambda: B.clone().baddbmm_(2, B, B), lambda: 2 * B + B @ B),
    "addbmm": (lambda: gl.addbmm(2, X, B, B), lambda: X.addbmm(2, B, B), lambda: X.clone().addbmm_(2, B, B), lambda: 2 * X + X @ X),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_factors_before_tensors(name):
    *older, today = ORDERS[name]
    for call in older:
        with pytest.warns(UserWarning, match="deprecated"):
            assert gl.equal(call(), today())


def test_orders_that_there_never_were():
    for call in (lambda: gl.add(X, X, Y), lambda: X.add_(X, Y), lambda: gl.addcmul(X, X, 2, Y), lambda: gl.addmm(X, X, Y, Y),
                 lambda: X.addmm(X, 2, Y), lambda: gl.addmm(2, 3, 4, X, Y)):  # fmt: skip
        with pytest.raises(TypeError, match="takes"):
            call()


def test_shapes_by_their_names():
    assert gl.zeros(size=(2, 3)).shape == gl.rand(size=(2, 3), layout=None, pin_memory=False).shape == X.new_ones(size=(2, 3)).shape
    assert gl.arange(end=3).tolist() == [0, 1, 2]
    assert gl.randint(high=1, size=(2,)).tolist() == [0, 0]
    assert V.repeat(repeats=(2,)).tolist() == gl.tile(V, dims=(2,)).tolist() == [1.0, 2.0, 1.0, 2.0]
    assert X.view(size=(4,)).shape == (4,)
    assert V.expand(size=(2, 2)).tolist() == V.broadcast_to(2, 2).tolist() == [[1.0, 2.0]] * 2
    assert [x.tolist() for x in gl.arange(4).split(split_size=3)] == [[0, 1, 2], [3]]
    assert gl.max(X, other=Y).tolist() == gl.maximum(X, Y).tolist()
    assert [x.tolist() for x in gl.arange(4).hsplit(1, 3)] == [x.tolist() for x in gl.hsplit(gl.arange(4), indices=(1, 3))]
    with pytest.raises(TypeError, match="one argument"):
        gl.zeros(2, size=(3,))
    with pytest.raises(TypeError, match="unexpected keyword argument 'dtpye'"):
        gl.zeros(2, dtpye=gl.int64)
    with pytest.raises(NotImplementedError, match="layout"):
        gl.zeros(2, layout="sparse")


def test_questions_about_python_values():
    assert gl.all(True).item() is True
    assert gl.any([0, 1]).item() is True
    assert gl.all([1, 0]).item() is False


def test_functions_whose_place_others_have_taken():
    with pytest.warns(UserWarning, match="includes its end"):
        assert gl.range(1, 4).tolist() == [1.0, 2.0, 3.0, 4.0]
    with pytest.warns(UserWarning, match="deprecated"):
        assert gl.range(0, 1, 0.3).tolist() == pytest.approx([0, 0.3, 0.6, 0.9])
    with pytest.warns(UserWarning, match="reduced"):
        q, r = gl.qr(X)
    assert gl.allclose(q @ r, X)
    U, S, V = gl.svd(X)
    assert gl.allclose(U @ gl.diag(S) @ V.t(), X)
    assert gl.svd(X, compute_uv=False).U.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    with pytest.warns(UserWarning, match="solve_triangular"):
        found = gl.triangular_solve(Y, X, transpose=True)
    assert gl.allclose(X.triu().t() @ found.solution, Y)


def test_variables():
    Variable = gl.autograd.Variable
    x = Variable(gl.ones(2), requires_grad=True)
    assert x.requires_grad
    assert isinstance(x, Variable)
    assert isinstance(gl.ones(1), Variable)
    assert not isinstance(1.0, Variable)
    with pytest.warns(UserWarning, match="no_grad"):
        assert not Variable(gl.ones(1), volatile=True).requires_grad
    with pytest.warns(UserWarning, match="no_grad"):
        assert not x.volatile


def test_names_of_types():
    assert gl.typename(gl.ones(1, dtype=gl.int64)) == "torch.LongTensor"
    assert gl.typename(nn.Linear) == gl.typename(nn.Linear(1, 1)) == "gradlab.nn.modules.linear.Linear"
    assert gl.typename("text") == "str"


def test_small_questions():
    assert (gl.get_device(X), gl.is_inference(X), gl.is_distributed(X), gl.resolve_conj(X)) == (-1, False, False, X)
    assert gl._shape_as_tensor(X).tolist() == [2, 2]
    gl._assert(True, "fine")
    with pytest.raises(AssertionError, match="not fine"):
        gl._assert(False, "not fine")

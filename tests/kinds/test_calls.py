"""The catalogue is complete, its calls run, its marks are true, and PyTorch takes the same calls and gives the same numbers."""

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import CALLS, PUBLIC, TORCH, given_for, parts
from kinds.catalogue.excused import EXCUSED

RECORDED = [call for call in CALLS if not call.marks & {"plain", "making", "integer"}]
AGREED = [call for call in CALLS if call.reference is not None and not call.marks & {"random"}]
# The sign of an eigenvector is anybody's choice.
FREE = {"linalg.eigh"}


def test_every_public_name_has_a_call_or_an_excuse():
    assert [name for name in PUBLIC if not given_for(name) and name not in EXCUSED] == []
    assert [name for name in EXCUSED if name not in PUBLIC] == []
    assert len(CALLS) > 1500, len(CALLS)


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_runs(call):
    call.run()


@pytest.mark.parametrize("call", RECORDED, ids=repr)
def test_gradients_are_where_the_marks_say(call):
    found = parts(call.run(gl.float64, requires_grad=True))
    assert any(t.requires_grad for t in found) == ("no_gradient" not in call.marks)


@pytest.mark.parametrize("call", [call for call in CALLS if "plain" in call.marks], ids=repr)
def test_plain_calls_refuse_tensors_that_require_grad(call):
    with pytest.raises((RuntimeError, BufferError), match="grad"):
        call.run(gl.float64, requires_grad=True)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore:.*(deprecated|beta|dimension|window was not).*:UserWarning")
@pytest.mark.parametrize("call", AGREED, ids=repr)
def test_numbers_are_pytorchs(call):
    single = call.name.startswith(("gl.fake_quantize_per_channel", "F.grouped_mm"))  # PyTorch's take float32 alone
    expected = parts(call.run_reference(TORCH.float32 if single else TORCH.float64))
    found = parts(call.run(gl.float32 if single else gl.float64))
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        assert f.shape == tuple(e.shape)
        if call.name not in FREE:
            got, want = (t.detach().to(engine.complex128).resolve_conj().numpy() for t, engine in ((f, gl), (e, TORCH)))
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 if call.name == "F.grouped_mm" else 1e-9)

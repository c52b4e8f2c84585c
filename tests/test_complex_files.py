"""Files of complex tensors, both ways with PyTorch and with the public safetensors library."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

Z = np.array([[1 + 2j, 3 - 1j, 0], [0, 1j, -2]])


@pytest.mark.parametrize("dtype", [gl.complex64, gl.complex128])
@pytest.mark.torch
def test_both_ways_with_pytorch(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    z, file = gl.tensor(Z, dtype=dtype), tmp_path / "z.pt"
    gl.save({"z": z, "turned": z.t()}, file)
    read = torch.load(file)
    assert read["z"].numpy().dtype == z.numpy().dtype and np.array_equal(read["turned"].numpy(), z.numpy().T)
    t = read["z"]
    for given, wanted in ((t, z), (t.conj(), z.conj()), (t.conj().imag, z.conj().imag)):  # the last two are marks on z's storage
        torch.save(given, file)
        own = gl.load(file)
        assert own.dtype is wanted.dtype and gl.equal(own, wanted)


def test_safetensors(tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    z, file = gl.tensor(Z, dtype=gl.complex64), tmp_path / "z.safetensors"
    gl.save({"z": z}, file)
    assert gl.load(file)["z"].dtype is gl.complex64 and gl.equal(gl.load(file)["z"], z)
    assert np.array_equal(numpy_files.load_file(file)["z"], z.numpy())

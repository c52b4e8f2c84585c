"""Functions that make tensors, that draw, that convert, and that answer what a tensor is."""

from __future__ import annotations

import numpy as np

import gradlab as gl

from kinds.catalogue.giving import I, P, Q, V, X, Y, given, words

CALLS = {
    "gl.zeros": [given(2, 3)], "gl.ones": [given(2, 3)], "gl.empty": [given(2, 3)], "gl.full": [given((2, 3), 0.5), given((2,), 3)],
    "gl.eye": [given(3), given(2, 4)], "gl.arange": [given(5), given(0.5, 3.0, 0.5)], "gl.linspace": [given(0.0, 1.0, 5)],
    "gl.logspace": [given(0.0, 1.0, 5)], "gl.rand": [given(2, 3)], "gl.randn": [given(2, 3)], "gl.randint": [given(0, 5, (2, 3))],
    "gl.randperm": [given(5)], "gl.scalar_tensor": [given(0.5)], "gl.tensor": [given([[1.0, 2.0]]), given([1, 2]), given(True)],
    "gl.as_tensor": [given(X), given([1.0, 2.0])], "gl.asarray": [given(X), given([1.0, 2.0])], "gl.empty_strided": [given((2, 3), (1, 2))],
    "gl.empty_permuted": [given((2, 3), (1, 0))],
    "zeros_like": [given(X)], "ones_like": [given(X)], "gl.empty_like": [given(X)], "gl.full_like": [given(X, 0.5)],
    "gl.rand_like": [given(X)], "gl.randn_like": [given(X)], "gl.randint_like": [given(X, 5)],
    **{
        f"gl.{name}_window": [given(5, dtype=gl.float64), given(4, False, dtype=gl.float64)]
        for name in words("bartlett blackman hamming hann kaiser")
    },
    "gl.frombuffer": [given(bytearray(8), dtype=gl.float32)],
    "gl.from_dlpack": [given(X)],
    "Tensor.new_zeros": [given(X, 2, 3)], "Tensor.new_ones": [given(X, 2, 3)], "Tensor.new_empty": [given(X, 2, 3)],
    "Tensor.new_full": [given(X, (2, 3), 0.5)], "Tensor.new_tensor": [given(X, [1.0, 2.0])],
    "Tensor.new": [given(X, 2, 3), given(X, [1.0, 2.0])],
    "Tensor.new_empty_strided": [given(X, (2, 3), (1, 2))],
    "bernoulli": [given(P), given(P, 0.3)], "gl.multinomial": [given(P, 2)], "Tensor.multinomial": [given(P, 2)],
    "gl.poisson": [given(P * 4)],
    "gl.normal": [given(X, P), given(0.0, 1.0, (2, 3))], "Tensor.bernoulli_": [given(X, 0.3), given(X, Q)], "Tensor.cauchy_": [given(X)],
    "Tensor.exponential_": [given(X)], "Tensor.geometric_": [given(X, 0.3)], "Tensor.log_normal_": [given(X)], "Tensor.normal_": [given(X)],
    "Tensor.random_": [given(X), given(I, 2, 7)], "Tensor.uniform_": [given(X)],
    "Tensor.to": [given(X, gl.float64), given(X, gl.float32), given(X, Y), given(I, gl.int16), given(X, "cpu")],
    "Tensor.type": [given(X), given(X, gl.float64), given(X, "torch.DoubleTensor")], "Tensor.type_as": [given(X, I), given(X, Y)],
    **{f"Tensor.{name}": [given(X)] for name in words("bfloat16 bool byte char cpu double float half int long short")},
    **{f"Tensor.{name}": [given(X)] for name in words("__array__ __dlpack__ __dlpack_device__ __deepcopy__ numpy tolist size stride dim")},
    "Tensor.tobytes": [given(X)],
    **{f"Tensor.{name}": [given(X)] for name in words("""
        data_ptr element_size is_pinned is_distributed storage untyped_storage storage_type name is_xpu is_mps is_ipu is_xla is_mtia
        is_maia is_vulkan is_hpu is_mkldnn get_device is_contiguous is_inference ndimension nelement storage_offset requires_grad_
        device dtype grad
        grad_fn is_cpu is_cuda is_leaf itemsize nbytes ndim output_nr requires_grad retains_grad shape is_meta is_nested is_quantized
        is_sparse is_sparse_csr layout sparse_dim dense_dim to_dense _version _base dim_order
    """)},
    **{f"Tensor.{name}": [given(V[:1])] for name in words("item __bool__ __float__ __int__")}, "Tensor.__index__": [given(np.array(3))],
    "Tensor.__deepcopy__": [given(X, {})], "Tensor.is_set_to": [given(X, Y)],
    **{name: [given(X)] for name in words("""
        is_complex is_conj is_floating_point is_neg is_signed numel is_tensor gl.get_device gl.is_inference gl.is_distributed gl.typename
        gl.is_storage resolve_conj resolve_neg Tensor.pin_memory
    """)},
    "gl.broadcast_shapes": [given((2, 1), (3,))], "gl.can_cast": [given(gl.float32, gl.int32)],
    "gl.promote_types": [given(gl.float32, gl.int32)], "gl.result_type": [given(X, I)],
}  # fmt: skip

"""Marks of calls that no rule tells: a name, a name with its room, or one of its calls ("any-2")."""

from __future__ import annotations

from kinds.catalogue.giving import words

IN_PLACE = set(words("""
    Tensor.__iadd__ Tensor.__iand__ Tensor.__ifloordiv__ Tensor.__ilshift__ Tensor.__imod__ Tensor.__imul__ Tensor.__ior__ Tensor.__ipow__
    Tensor.__irshift__ Tensor.__isub__ Tensor.__itruediv__ Tensor.__ixor__ Tensor.__setitem__
"""))

RANDOM = set(words("""
    rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial poisson normal bernoulli_ cauchy_ exponential_
    geometric_ log_normal_ normal_ random_ uniform_ alpha_dropout feature_alpha_dropout dropout dropout1d dropout2d dropout3d rrelu rrelu_
    gumbel_softmax native_dropout svd_lowrank pca_lowrank empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_
"""))

PLAIN = set(words("""
    linalg.ldl_factor linalg.ldl_factor_ex
    gl.from_dlpack Tensor.__array__ Tensor.__dlpack__ Tensor.numpy Tensor.tobytes Tensor.resize_ Tensor.resize_as_ Tensor.set_
"""))

NO_GRADIENT = set(words("""
    histogramdd masked.argmax masked.argmin detach_copy linalg.ldl_factor linalg.ldl_factor_ex
    eq ne not_equal lt less le less_equal gt greater ge greater_equal __eq__ __ne__ __lt__ __le__ __gt__ __ge__ isclose allclose equal
    logical_and logical_or logical_xor logical_not isfinite isinf isnan isneginf isposinf isreal signbit isin any all
    argmax argmin argsort nonzero nonzero_static argwhere count_nonzero searchsorted bucketize histc histogram matrix_rank
    zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full new_empty new_empty_strided
    new new_tensor bernoulli-1 multinomial detach data detach_ bool byte char short int long type-0 type_as-0
    is_complex is_conj is_floating_point is_neg is_nonzero is_same_size is_signed is_tensor numel result_type
    __bool__ __float__ __int__ __len__ __contains__ __dlpack_device__ item tolist size stride dim data_ptr element_size get_device
    is_contiguous is_inference ndimension nelement storage_offset device dtype grad grad_fn is_cpu is_cuda is_leaf itemsize nbytes ndim
    output_nr requires_grad retains_grad shape is_meta is_nested is_quantized is_sparse is_sparse_csr layout
    sparse_dim dense_dim _version _base
    dim_order is_set_to storage untyped_storage storage_type is_storage typename is_distributed is_pinned is_xpu is_mps is_ipu is_xla
    is_mtia is_maia is_vulkan is_hpu is_mkldnn name
"""))

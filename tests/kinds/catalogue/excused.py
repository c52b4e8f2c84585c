"""Public names without a sample call, each with the reason; and names whose marks no rule tells."""

from __future__ import annotations


def because(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


EXCUSED = {
    **because("a setting, or reads one", """
        gl.are_deterministic_algorithms_enabled gl.clear_autocast_cache gl.get_autocast_dtype gl.get_default_device gl.get_default_dtype
        gl.get_float32_matmul_precision gl.get_num_threads gl.get_rng_state gl.initial_seed gl.is_autocast_cache_enabled
        gl.is_autocast_enabled gl.is_deterministic_algorithms_warn_only_enabled gl.is_grad_enabled gl.is_inference_mode_enabled
        gl.manual_seed gl.printoptions gl.seed gl.set_autocast_cache_enabled gl.set_autocast_dtype gl.set_autocast_enabled
        gl.set_default_device gl.set_default_dtype gl.set_float32_matmul_precision gl.set_num_threads gl.set_printoptions
        gl.set_rng_state gl.use_deterministic_algorithms gl.fork_rng gl.set_default_tensor_type
    """),
    **because("a setting, or reads one: test_settings.py", """
        gl.get_autocast_cpu_dtype gl.get_autocast_gpu_dtype gl.get_deterministic_debug_mode gl.get_num_interop_threads gl.is_anomaly_enabled
        gl.is_autocast_cpu_enabled gl.is_warn_always_enabled gl.set_autocast_cpu_dtype gl.set_autocast_cpu_enabled
        gl.set_autocast_gpu_dtype gl.set_deterministic_debug_mode gl.set_flush_denormal gl.set_num_interop_threads gl.set_warn_always
    """),
    **because("of graphs that are defined first and run later: test_session.py", """
        gl.assign gl.assign_add gl.assign_sub gl.get_default_graph gl.global_variables_initializer gl.identity gl.placeholder
        gl.variables_initializer
    """),
    **because("takes functions: test_control_flow.py, test_compile.py, test_vmap.py", "gl.cond gl.scan gl.switch gl.while_loop "
              "gl.compile gl.vmap"),
    **because("moves memory: test_multiprocessing.py", "Tensor.share_memory_ Tensor.is_shared"),
    **because("reads or writes files, or describes a model", "gl.load gl.load_run gl.save gl.explain gl.summary"),
    **because("makes, takes or asks for sparse tensors: test_sparse.py, test_sparse_refusals.py", """
        gl.dsmm gl.hsmm gl.smm gl.spmm gl.sparse_compressed_tensor gl.sparse_coo_tensor gl.sparse_csc_tensor gl.sparse_csr_tensor
        Tensor.ccol_indices Tensor.coalesce Tensor.col_indices Tensor.crow_indices Tensor.indices Tensor.is_coalesced Tensor.nnz
        Tensor.row_indices Tensor.smm Tensor.sparse_mask Tensor.to_sparse Tensor.to_sparse_coo Tensor.to_sparse_csc Tensor.to_sparse_csr
        Tensor.values
    """),
    **because("Python's own or an inner tool", "gl.import_module special.named_functions linalg.named_functions "
              "fft.named_functions masked.named_functions special.bind special.rounds_once special.tensors_only "
              "fft.as_numpy fft.bind fft.complex_of fft.count fft.get_default_dtype fft.normalize_dim fft.tensor fft.whole masked.as_numpy "
              "masked.from_numpy masked.normalize_dim masked.normalize_dims masked.rounds_once"),
    **because("needs a graph: test_autograd.py, test_hooks.py", """
        Tensor.backward Tensor.retain_grad Tensor.register_hook Tensor.register_post_accumulate_grad_hook
    """),
    **because("takes a class: test_overrides.py", "Tensor.as_subclass"),
    **because("needs a GPU", "Tensor.cuda Tensor.record_stream"),
    **because("takes a NumPy array, no tensor: test_interop.py", "gl.from_numpy"),
    **because("other libraries ask for it: test_interop.py", """
        Tensor.__array_interface__ Tensor.__array_namespace__ Tensor.__cuda_array_interface__ Tensor.__jax_array__ Tensor.to_device
        Tensor.to_numpy
    """),
    **because("of the class itself", "Tensor.__apply__ Tensor.__array_ufunc__ Tensor.__array_function__"),
    **because("says that it is deprecated: test_older_habits.py", """
        gl.range gl.qr gl.triangular_solve Tensor.qr Tensor.triangular_solve Tensor.volatile
    """),
    **because("calls a Python function: test_storage.py", "Tensor.apply_ Tensor.map_ Tensor.map2_"),
    **because("of complex numbers: test_complex.py", """
        gl.complex gl.polar gl.imag gl.view_as_complex gl.view_as_real linalg.eig linalg.eigvals Tensor.imag Tensor.__complex__
        Tensor.cdouble Tensor.cfloat
    """),
    **because("there is no such product: a NumPy array to the left is converted first", "Tensor.__rmatmul__"),
}  # fmt: skip

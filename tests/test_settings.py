"""Settings that PyTorch's scripts make and ask for: taken, and answered as it is here."""

import warnings

import pytest

import gradlab as gl


def test_deterministic_debug_mode():
    try:
        for mode, number in (("default", 0), (1, 1), ("error", 2)):
            gl.set_deterministic_debug_mode(mode)
            assert gl.get_deterministic_debug_mode() == number
            assert gl.are_deterministic_algorithms_enabled() is (number > 0)
        with pytest.raises(RuntimeError, match="default, warn, error"):
            gl.set_deterministic_debug_mode("loud")
    finally:
        gl.use_deterministic_algorithms(True)


def test_warnings_each_time():
    def seen():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("default")
            for _ in range(2):
                gl.qr(gl.eye(2))
        return len(found)

    assert not gl.is_warn_always_enabled()
    try:
        gl.set_warn_always(True)
        assert gl.is_warn_always_enabled()
        assert seen() == 2
    finally:
        gl.set_warn_always(False)
    assert seen() <= 1


def test_what_there_is_not():
    assert gl.set_flush_denormal(True) is False
    assert gl.get_num_interop_threads() == 1
    gl.set_num_interop_threads(4)
    with pytest.raises(RuntimeError, match="at least 1"):
        gl.set_num_interop_threads(0)
    assert not any(getattr(gl.backends, name).is_available() for name in ("mkl", "mkldnn", "openmp", "mps"))
    with gl.backends.mkldnn.flags(enabled=True):
        assert not gl.backends.mkldnn.enabled
    assert gl.backends.cuda.is_built()


def test_anomaly():
    assert not gl.is_anomaly_enabled()
    with gl.autograd.detect_anomaly():
        assert gl.is_anomaly_enabled()


def test_cudnn_is_asked_and_told():
    cudnn = gl.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, cudnn.benchmark_limit
    assert before == (False, True, False, 10)
    with cudnn.flags(enabled=False, benchmark=True, deterministic=True, allow_tf32=False):
        assert not cudnn.enabled
    matmul = gl.backends.cuda.matmul
    assert not matmul.allow_fp16_reduced_precision_reduction
    try:
        matmul.allow_bf16_reduced_precision_reduction = True
        assert matmul.allow_bf16_reduced_precision_reduction
    finally:
        matmul.allow_bf16_reduced_precision_reduction = False


def test_autocast_of_one_device():
    with pytest.warns(DeprecationWarning, match=r'get_autocast_dtype\("cuda"\)'):
        assert gl.get_autocast_gpu_dtype() is gl.float16
    with pytest.warns(DeprecationWarning, match="cpu"):
        assert gl.get_autocast_cpu_dtype() is gl.bfloat16
    with gl.autocast("cpu"), pytest.warns(DeprecationWarning, match="cpu"):
        assert gl.is_autocast_cpu_enabled()


def test_devices_and_types():
    assert gl.device(type="cuda", index=1) == gl.device(1) == gl.device("cuda:1")
    with pytest.raises(TypeError, match="type="):
        gl.device()
    assert gl.float16.to_real() is gl.float16
    assert gl.float32.to_complex() is gl.complex64 is gl.complex64.to_complex() and gl.complex128.to_real() is gl.float64
    with pytest.raises(TypeError, match="no complex numbers of half precision"):
        gl.float16.to_complex()
    assert repr(gl.iinfo(gl.int8)) == "iinfo(min=-128, max=127, dtype=int8)"
    assert repr(gl.finfo(gl.float32)).startswith("finfo(resolution=1e-06, min=-3.40282e+38")


def test_weights_of_a_recurrent_layer_by_name():
    layer = gl.nn.LSTM(2, 3, 2, bidirectional=True)
    assert layer._all_weights[1] == ["weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse"]
    assert layer._flat_weights_names == [name for name, _ in layer.named_parameters()]
    assert all(a is b for a, b in zip(layer._flat_weights, layer.parameters(), strict=True))


def test_what_scripts_ask_of_gpus_that_are_not_there():
    if gl.cuda.is_available():
        return
    cuda = gl.cuda
    assert cuda.max_memory_reserved() == cuda.memory_cached() == cuda.max_memory_cached() == 0
    assert cuda.memory_stats() == {}
    assert cuda.get_arch_list() == []
    cuda.reset_max_memory_allocated()
    cuda.reset_max_memory_cached()
    cuda.ipc_collect()
    assert cuda.initial_seed() == gl.initial_seed()

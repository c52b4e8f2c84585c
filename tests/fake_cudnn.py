"""A stand-in of cuDNN's frontend (the package `cudnn`), computing with the rows' own NumPy functions on the emulated GPU's memory.

It has what `backends/cuda/cudnn_graphs.py` calls; tests/test_cudnn.py compares those names with the real package where that is installed.
`channels_last` is what frontends up to 1.26 do with a result whose strides nobody set.
"""

from __future__ import annotations

import ctypes
import enum

import ml_dtypes
import numpy as np

from gradlab import ops

data_type = enum.Enum("data_type", "NOT_SET FLOAT HALF BFLOAT16")
heur_mode = enum.Enum("heur_mode", "A FALLBACK")
numerical_note = enum.Enum("numerical_note", "TENSOR_CORE DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION NONDETERMINISTIC")
NUMPY = {data_type.FLOAT: np.float32, data_type.HALF: np.float16, data_type.BFLOAT16: ml_dtypes.bfloat16}


class cudnnGraphNotSupportedError(RuntimeError):
    pass


class Tensor:
    def __init__(self, dim=None, stride=None, data_type=None):
        self.dim, self.stride, self.data_type, self.output = dim, stride, data_type, False

    def set_output(self, value):
        self.output = value
        return self

    def set_data_type(self, value):
        self.data_type = value
        return self

    def set_dim(self, value):
        self.dim = value
        return self

    def set_stride(self, value):
        self.stride = value
        return self

    def array(self, address):
        dtype = np.dtype(NUMPY[self.data_type])
        reach = 1 + sum(s * (n - 1) for s, n in zip(self.stride, self.dim, strict=True))
        whole = np.frombuffer((ctypes.c_char * (reach * dtype.itemsize)).from_address(address), dtype)
        return np.lib.stride_tricks.as_strided(whole, self.dim, [s * dtype.itemsize for s in self.stride])


def row_of(name, params, *inputs):
    """A row's outputs in float32."""
    given = [None if x is None else np.asarray(x, np.float32) for x in inputs]
    found = ops.ROWS[name](*given, **params)
    return found if isinstance(found, tuple) else (found,)


class Frontend:
    """The module, for one driver. spoil: what is done to a graph's results; refuses: kinds that no engine takes."""

    def __init__(self, driver, spoil=lambda kind, y: y, refuses=(), keeps_strides=True):
        self.driver, self.spoil, self.refuses, self.keeps_strides = driver, spoil, refuses, keeps_strides
        self.log, self.streams, self.unwanted = [], [], []
        for name in ("data_type", "heur_mode", "numerical_note", "cudnnGraphNotSupportedError"):
            setattr(self, name, globals()[name])
        front = self

        class pygraph(Graph):
            frontend = front

        self.pygraph = pygraph

    def create_handle(self):
        return object()

    def set_stream(self, handle, stream):
        self.streams.append(stream)


class Graph:
    frontend: Frontend

    def __init__(self, io_data_type, intermediate_data_type, compute_data_type, handle=None):
        assert intermediate_data_type is compute_data_type is data_type.FLOAT
        self.tensors, self.made, self.then, self.stage = [], [], [], "new"

    def tensor(self, name, dim, stride, data_type):
        made = Tensor(dim, stride, data_type)
        self.tensors.append(made)
        return made

    def _node(self, kind, run, number=1):
        self.kind, self.run = kind, run
        self.made = [Tensor() for _ in range(number)]
        return self.made[0] if number == 1 else tuple(self.made)

    @staticmethod
    def _numbers(padding, stride, dilation):
        return {"padding": tuple(padding), "stride": tuple(stride), "dilation": tuple(dilation), "groups": 1}

    def conv_fprop(self, image, weight, padding, stride, dilation):
        numbers = self._numbers(padding, stride, dilation)
        return self._node("fprop", lambda at: row_of("convolution", numbers, at[image], at[weight], None))

    def bias(self, name, input, bias):
        self.then.append(lambda at, y: y + np.asarray(at[bias], np.float32))
        return input

    def relu(self, name, input):
        self.then.append(lambda at, y: np.maximum(y, 0))
        return input

    def conv_dgrad(self, loss, filter, padding, stride, dilation):
        numbers = self._numbers(padding, stride, dilation)
        return self._node("dgrad", lambda at: row_of("convolution_dx", {**numbers, "shape": tuple(self.made[0].dim)}, at[loss], at[filter]))

    def conv_wgrad(self, image, loss, padding, stride, dilation):
        numbers = self._numbers(padding, stride, dilation)
        return self._node("wgrad", lambda at: row_of("convolution_dw", {**numbers, "shape": tuple(self.made[0].dim)}, at[image], at[loss]))

    def sdpa(self, name, q, k, v, generate_stats, attn_scale, use_causal_mask):
        params = {"scale": attn_scale, "causal": use_causal_mask}

        def run(at):
            y, lse = row_of("scaled_dot_product_attention", params, at[q], at[k], at[v], None)
            return y, lse[..., None]

        return self._node("sdpa", run, 2)

    def sdpa_backward(self, name, q, k, v, o, dO, stats, attn_scale, use_causal_mask, use_deterministic_algorithm):
        params = {"scale": attn_scale, "causal": use_causal_mask}

        def run(at):
            given = at[dO], None, at[q], at[k], at[v], None, at[o], np.asarray(at[stats])[..., 0]
            return row_of("scaled_dot_product_attention_backward", params, *given)

        return self._node("sdpa_backward", run, 3)

    def validate(self):
        for y in self.made:
            assert y.output
            if not self.frontend.keeps_strides:  # as if nobody had set them, before 1.27
                _, c, *space = y.dim
                steps = np.cumprod([c, *space[:0:-1]])[::-1]
                y.stride = [c * int(np.prod(space)), 1, *map(int, steps)]
        self.stage = "validated"

    def build_operation_graph(self):
        assert self.stage == "validated"
        if self.kind in self.frontend.refuses:
            raise cudnnGraphNotSupportedError(f"no engine for {self.kind}")

    def create_execution_plans(self, modes):
        assert modes
        self.stage = "planned"

    def deselect_numeric_notes(self, notes):
        assert self.stage == "planned"  # the real one takes them between these two steps
        self.frontend.unwanted += notes

    def check_support(self):
        pass

    def build_plans(self):
        self.stage = "built"

    def get_workspace_size(self):
        return 64

    def execute(self, buffers, workspace, handle):
        assert self.stage == "built" and workspace and handle is not None
        front = self.frontend

        def work():
            at = {t: t.array(p) for t, p in buffers.items()}
            found = [np.array(y) for y in self.run(at)]
            for then in self.then:
                found[0] = then(at, found[0])
            for tensor, y in zip(self.made, found, strict=True):
                at[tensor][...] = front.spoil(self.kind, y).astype(at[tensor].dtype)

        front.log.append(self.kind)
        reads = [p for t, p in buffers.items() if t not in self.made]
        front.driver.submit("cudnn", reads, [buffers[t] for t in self.made], work, front.streams[-1])

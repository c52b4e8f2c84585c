"""The CUDA backend: runs rows on a driver's arrays.

Every call looks up a plan by the row, its operands' shapes, strides and dtypes, and its parameters. A plan has decided all that does not
depend on values: the outputs' Specs, the kernel, its grid, the layout of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends import determinism, strided_results
from gradlab.backends.cuda import elementwise, fallback, launch, reduction
from gradlab.backends.cuda.compiler import Compiler
from gradlab.backends.cuda.driver import Driver
from gradlab.backends.cuda.gemm.library import blas_of, warm
from gradlab.backends.cuda.gemm.rows import product_with_sums
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.nccl.beside import message
from gradlab.device import Device
from gradlab.dispatch import DevicesDiffer
from gradlab.dtype import FLOATING, INT64
from gradlab.kernel import Elementwise, Gemm, Kernel, Library, Movement, Reduction
from gradlab.op import Op
from gradlab.spec import Spec
from gradlab.strides import inverse_order, result_orders

# Of the inputs, and where given the contiguous arrays to write to and (of a row where some vary) the parameters; returns the result.
Plan = Callable[..., Any]
MOST_PLANS = 8192
MOST_STATES = 64


class CudaBackend:
    """Computes rows with one driver."""

    staged = False

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.compiler = Compiler(driver)
        self.work = Work(driver, self.compiler)
        self._plans: dict[Any, Plan] = {}
        self.known: dict[Any, tuple[Plan, tuple[Any, ...], tuple[Any, ...]]] = {}
        determinism.changed += [self._plans.clear, self.known.clear]
        self._type: Any = driver.array_type
        self._several = driver.device_count() > 1
        self._devices = [Device("cuda", index) for index in range(driver.device_count())]
        self._states: dict[tuple[int, int, int], Any] = {}  # by device, stream and seed

    def run(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        driver = self.driver
        first = next((a for a in arrays if type(a) is self._type), None)
        if first is not None:
            device = driver.device_of(first)
            if self._several:
                self._check_devices(op, arrays, device)
        else:
            wanted = params["device"].index
            device = driver.current_device() if wanted is None else wanted
        before = driver.current_device()
        if device != before:
            driver.set_device(device)
        try:
            key = self.key(op, arrays, params)
            plan = self._plans.get(key)
            if plan is None:
                plan = self._plan(op, arrays, params)
                if op.lies is not None and not strided_results.lie_row_by_row(arrays):
                    plan = self._laid(op, arrays, params, plan)
                if len(self._plans) >= MOST_PLANS:
                    self._plans.clear()
                self._plans[key] = plan
            return plan(arrays, None, params) if op.varying else plan(arrays)
        finally:
            if device != before:
                driver.set_device(before)

    # ------------------------------------------------------------ calls that repeat themselves (dispatch.Recalling)

    def key(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        array_type = self._type
        if not params and not self._several:  # the commonest, written out
            if len(arrays) == 1:
                (a,) = arrays
                return op, a.shape, a.strides, a.dtype
            if len(arrays) == 2:
                a, b = arrays
                if type(a) is array_type and type(b) is array_type:
                    return op, a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype
        key: tuple[Any, ...] = (op,)
        for a in arrays:
            key += (a.shape, a.strides, a.dtype) if type(a) is array_type else (type(a),)
        if self._several:
            driver = self.driver
            key += (driver.current_device(), *[driver.device_of(a) for a in arrays if type(a) is array_type])
        if params:
            key += tuple(map(params.get, op.fixed))
            if "value" in params:  # 0.0 equals -0.0, 1 equals True and 1.0: not the same number to fill with
                key += (repr(params["value"]),)
        return key

    def remember(self, op: Op, given: list[Any], arrays: list[Any], params: dict[str, Any]) -> None:
        if op.dynamic or any(a is not b for a, b in zip(given, arrays, strict=True)):
            return
        device = self.driver.current_device()
        if self._several and any(type(a) is self._type and self.driver.device_of(a) != device for a in arrays):
            return
        try:
            key = self.key(op, arrays, params)
            plan = self._plans[key]
            specs = tuple([Spec(a.shape, a.dtype) if type(a) is self._type else None for a in arrays])
            if len(self.known) >= MOST_PLANS:
                self.known.clear()
            self.known[key] = plan, specs, op.specs(*[self._spec(a, arrays) for a in arrays], **params)
        except (KeyError, TypeError):  # no plan is kept of it
            pass

    def update_many(
        self, op: Op, arguments: list[list[Any]], params: dict[str, Any], known: dict[Any, Any], skip: Any = None
    ) -> list[tuple[Any, ...]]:
        """An optimizer's row for many parameters on one device, in place (`launch/optim.py`). known: what it keeps for the next call."""
        driver = self.driver
        before, device = driver.current_device(), driver.device_of(arguments[0][0])
        if device != before:
            driver.set_device(device)
        try:
            return launch.optim.multi_tensor(self.work, op, arguments, params, known, skip)
        finally:
            if device != before:
                driver.set_device(before)

    def place_of(self, array: Any) -> int:
        """The number of the array's device."""
        return self.driver.device_of(array) if self._several else 0

    updates = frozenset(launch.optim.FORMS)  # the rows that `update_launches` takes

    def update_launches(self, op: Op, rows: Sequence[tuple[list[Any], list[Any]]], params: dict[str, Any]) -> list[Callable[[], None]]:
        """An optimizer's row for many parameters on the current device: what does all of them, one call for each dtype. Each of `rows` has
        the row's inputs, with the same h, and its contiguous outputs, which may be inputs."""
        return launch.optim.launches(self.work, op, rows, params)

    def product_with_sums(self, a: Any, b: Any, c: Any, sums: Any) -> Callable[[], None] | None:
        """What computes c = a @ b (matrices) and the sums of a's rows in one launch, for these arrays; None where that cannot be."""
        return product_with_sums(self.work, a, b, c, sums) if c.dtype in FLOATING else None

    def takes_steps(self, device: Device, unit: str, dtype: np.dtype[Any], batch: int, units: int) -> bool:
        """Whether one launch does all steps of so many sequences through a layer of so many units of a kind (`launch.recurrent.UNITS`)."""
        index = self.driver.current_device() if device.index is None else device.index
        return launch.recurrent.form_of(self.driver.capability(index), unit, dtype, batch, units) is not None

    def warm(self) -> None:
        """Make what products on the current device and stream need, before a capture."""
        warm(self.driver)

    def refusals(self) -> int:
        """How often the library has refused at run time what it was prepared for."""
        blas = blas_of(self.driver)
        return 0 if blas is None else blas.refusals

    def _check_devices(self, op: Op, arrays: list[Any], device: int) -> None:
        for a in arrays:
            if type(a) is self._type and self.driver.device_of(a) != device:
                names = op.inputs if not op.variadic else [f"{op.inputs[0]}[{i}]" for i in range(len(arrays))]
                places = [(n, f"cuda:{self.driver.device_of(x)}") for n, x in zip(names, arrays, strict=False) if type(x) is self._type]
                raise DevicesDiffer(op.name, places)

    # ------------------------------------------------------------ plans

    def _plan(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Plan:
        if op.view:
            return self._view_plan(op, params)
        given = {k: v for k, v in params.items() if k != "device"} if not arrays else params
        specs = [self._spec(a, arrays) for a in arrays]
        if op.dynamic:
            op.infer(*specs, **params)
            dynamic = launch.DYNAMIC.get(op.name)
            if dynamic is not None and dynamic.takes(specs, given):
                return lambda inputs: dynamic.run(self.work, inputs, given)
            return lambda inputs: fallback.run(self.work, op, inputs, None, given)
        found = op.infer(*specs, **params)
        outs = (found,) if isinstance(found, Spec) else tuple(found)
        description = op.cuda
        if isinstance(description, Elementwise) and elementwise.fits(outs[0], specs):
            return elementwise.plan(self.work, op, arrays, specs, outs[0], params)
        if isinstance(description, Reduction):
            return reduction.plan(self.work, op, arrays, specs, outs[0], params)
        rule = self._rule(op)
        if rule is None or not rule.takes(specs, outs, given):
            return self._host_plan(op, outs, given)
        prepared = rule.prepare(self.work, arrays, outs) if rule.prepare is not None else None
        if prepared is None:
            prepared = self._rule_plan(op, rule.run, specs, outs, given)
            if rule.repeats:
                return launch.plan(self.work, rule.run, arrays, outs, given, prepared, op.varying, rule.chooses)
        return prepared

    def _rule_plan(
        self, op: Op, rule: Callable[..., None], specs: list[Spec | None], outs: tuple[Spec, ...], params: dict[str, Any]
    ) -> Plan:
        work = self.work
        empty = self.driver.empty
        numbers = [i for i, s in enumerate(specs) if s is not None]

        def plan(arrays: list[Any], given: Sequence[Any] | None = None, now: dict[str, Any] = params) -> Any:
            inputs = [
                work.number(a, specs[i]) if i in numbers and isinstance(a, (int, float, complex)) else a  # type: ignore[arg-type]
                for i, a in enumerate(arrays)
            ]
            made = [empty(s.shape, s.dtype) for s in outs] if given is None else list(given)
            rule(work, inputs, made, now)
            return made[0] if len(made) == 1 else tuple(made)

        return plan

    def _host_plan(self, op: Op, outs: tuple[Spec, ...], params: dict[str, Any]) -> Plan:
        def plan(arrays: list[Any], given: Sequence[Any] | None = None, now: dict[str, Any] = params) -> Any:
            found = fallback.run(self.work, op, arrays, outs, now)
            if given is not None:
                for target, made in zip(given, found if isinstance(found, tuple) else (found,), strict=True):
                    self.work.copy(target, made)
            return found

        return plan

    def prepared(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Plan:
        """The plan of a row for arrays like these on the current device, for a program that runs it many times: `plan(inputs, outputs)`
        writes into contiguous arrays that lie outside of all inputs (of an optimizer's row: in them). Views and dynamic rows take no
        outputs."""
        return self._plan(op, arrays, params)

    def why_on_host(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> str:
        """Why a row would run on the host for arrays like these, where no graph can be captured of it; "" for a row with kernels."""
        if op.dynamic:
            return "the size of its result depends on values"
        if op.view:
            return ""
        specs = [self._spec(a, arrays) for a in arrays]
        given = {k: v for k, v in params.items() if k != "device"} if not arrays else params
        outs = op.specs(*specs, **given)
        description = op.cuda
        if isinstance(description, Reduction) or (isinstance(description, Elementwise) and elementwise.fits(outs[0], specs)):
            return ""
        rule = self._rule(op)
        return "it has no kernel" if rule is None else "" if rule.takes(specs, outs, given) else "its kernels do not take these operands"

    @staticmethod
    def _rule(op: Op) -> Any:
        if isinstance(op.cuda, Kernel):
            return launch.RULES.get((op.cuda.file, op.cuda.name))
        return launch.BY_ROW.get(op.name) if isinstance(op.cuda, (Gemm, Movement, Library)) else None

    def _laid(self, op: Op, arrays: list[Any], params: dict[str, Any], plan: Plan) -> Plan:
        """A plan whose results lie as the row says; `plan`, whose results are row-major, where that is so."""
        results = op.specs(*[self._spec(a, arrays) for a in arrays], **params)
        orders = result_orders(op.lies, arrays, results, params)
        if all(order is None for order in orders):
            return plan
        order = orders[0]
        if op.elementwise and order is not None:
            turn = strided_results.turning([getattr(a, "ndim", -1) for a in arrays], order)
            inner, back = self._plan(op, turn(arrays), params), inverse_order(order)
            return lambda arrays, given=None, now=params: inner(turn(arrays)).transpose(back)
        row_by_row = (lambda op, arrays, now: plan(arrays, None, now)) if op.varying else lambda op, arrays, now: plan(arrays)
        return lambda arrays, given=None, now=params: strided_results.run(op, arrays, now, results, row_by_row, self.copy)

    def _view_plan(self, op: Op, params: dict[str, Any]) -> Plan:
        if isinstance(op.cuda, Library):
            function, library = op.cuda.function, self.driver.library
            return lambda arrays: function(library, arrays, params)
        cpu = op.cpu
        return lambda arrays: cpu(*arrays, **params)

    def _spec(self, a: Any, arrays: list[Any]) -> Spec | None:
        if a is None:
            return None
        if isinstance(a, (int, float, complex)):
            for x in arrays:
                if type(x) is self._type:
                    return Spec((), x.dtype)
            return Spec((), np.result_type(a))
        return Spec(a.shape, a.dtype)

    # ------------------------------------------------------------ copies

    def device_of(self, array: Any) -> Device:
        return self._devices[self.driver.device_of(array)]

    def to_numpy(self, array: Any) -> Any:
        """A copy in host memory, after the work before it."""
        driver = self.driver
        before, device = driver.current_device(), driver.device_of(array)
        if device != before:
            driver.set_device(device)
        try:
            found = driver.download(self.work.contiguous(array))
            self.work.faults.check()
            return found
        finally:
            if device != before:
                driver.set_device(before)

    def from_numpy(self, array: Any, device: Device) -> Any:
        """A copy on the device."""
        driver = self.driver
        before = driver.current_device()
        index = before if device.index is None else device.index
        if index != before:
            driver.set_device(index)
        try:
            return driver.upload(np.ascontiguousarray(array).reshape(array.shape))
        finally:
            if index != before:
                driver.set_device(before)

    def random_state(self, seed: int, device: Device) -> Any:
        """A random state at the beginning of a seed's stream. Draws name their places in it, so it is made once: for each stream, whose
        later work finds it there."""
        driver = self.driver
        before = driver.current_device()
        index = before if device.index is None else device.index
        if index != before:
            driver.set_device(index)
        try:
            key = index, driver.current_stream().ptr, seed
            found = self._states.get(key)
            if found is None or driver.capturing():  # draws of a capture have states of their own (gradlab/cuda/captured_random.py)
                if len(self._states) >= MOST_STATES:
                    self._states.clear()
                found = self._states[key] = driver.upload(np.array([seed, 0], np.uint64).view(INT64))
            return found
        finally:
            if index != before:
                driver.set_device(before)

    def synchronize(self) -> None:
        """Wait for the current device; raise what its kernels have reported."""
        self.driver.synchronize()
        self.work.faults.check()

    def record_stream(self, array: Any, stream: Any) -> None:
        """`Tensor.record_stream`, of a driver's stream."""
        self.driver.record_stream(array, stream)

    def message(self, by: Any, way: str, array: Any, peer: int) -> Any:
        """An array sent to another process ("send") or received ("recv") by NCCL, see `nccl/beside.py`; None where it goes by the host."""
        return message(self.driver, by, way, array, peer)

    def moved(self, array: Any, device: Device) -> Any:
        """The array on another CUDA device."""
        return self.from_numpy(self.to_numpy(array), device)

    def address(self, array: Any) -> int:
        return self.driver.pointer(array)

    def copy(self, array: Any) -> Any:
        """A contiguous copy of an array."""
        made = self.driver.empty(array.shape, array.dtype)
        self.work.copy(made, array)
        return made

    def assign(self, target: Any, source: Any) -> None:
        """Write `source` (same shape and dtype, of this device, another or the host) into the memory of `target`, which may be strided."""
        if isinstance(source, np.ndarray):
            source = self.from_numpy(source, self.device_of(target))
        elif self._several and self.driver.device_of(target) != self.driver.device_of(source):
            source = self.moved(source, self.device_of(target))
        driver = self.driver
        before, device = driver.current_device(), driver.device_of(target)
        if device != before:
            driver.set_device(device)
        try:
            self.work.copy(target, source)
        finally:
            if device != before:
                driver.set_device(before)

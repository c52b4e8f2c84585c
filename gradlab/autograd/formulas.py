"""From a row's gradient formulas to what a node keeps and how it computes its inputs' gradients. Worked out once for each row."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from gradlab.autograd import errors
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.node import Edge, Node
from gradlab.autograd.rounding import roundings_of, widened
from gradlab.autograd.saved import unpack_all
from gradlab.dtype import COMPLEX
from gradlab.op import Op

__all__ = ["Edge", "keeper", "plan_of", "with_back"]
new = object.__new__


def keeps(op: Op) -> tuple[bool, bool]:
    """Of a row of two inputs: whether it keeps nothing, and whether each input's gradient asks for the other input and for nothing else."""
    a, b = op.inputs
    wants = {step.targets[0]: step.wants for step in op.steps}
    crossed = wants.get(a) == ("g", b) and wants.get(b) == ("g", a) and op.kept_inputs == (b, a) and not op.kept_outputs
    return not op.kept_inputs and not op.kept_outputs, crossed


def keeper(op: Op) -> Callable[..., tuple[Any, ...]]:
    """For a row of two inputs: what to keep of them, given which of the two (by its edge) needs a gradient."""
    a, b = op.inputs
    wants = {step.targets[0]: step.wants for step in op.steps}
    a_for_a, b_for_a = (n in wants.get(a, ()) for n in (a, b))
    a_for_b, b_for_b = (n in wants.get(b, ()) for n in (a, b))
    if not (a_for_a or b_for_a or a_for_b or b_for_b):
        return lambda x, y, ex, ey: ()
    if not (a_for_a or b_for_b):
        if op.kept_inputs == (b, a):
            return lambda x, y, ex, ey: (None if ex is None else y, None if ey is None else x)
        if op.kept_inputs == (a, b):
            return lambda x, y, ex, ey: (None if ey is None else x, None if ex is None else y)

    def keep(x: Any, y: Any, ex: Any, ey: Any) -> tuple[Any, ...]:
        have = {
            a: x if (a_for_a and ex is not None) or (a_for_b and ey is not None) else None,
            b: y if (b_for_a and ex is not None) or (b_for_b and ey is not None) else None,
        }
        return tuple(have[name] for name in op.kept_inputs)

    return keep


def output_asked(op: Op) -> Callable[[Any, Any], bool]:
    """For a row of two inputs: whether the output is needed, given which of the two (by its edge) needs a gradient."""
    wants = {step.targets[0]: step.wants for step in op.steps}
    for_a, for_b = (op.outputs[0] in wants.get(name, ()) for name in op.inputs)
    return lambda ea, eb: (for_a and ea is not None) or (for_b and eb is not None)


class Plan:
    """What a node of a row keeps, for one choice of inputs that need a gradient.

    pick      from `(*inputs, *outputs, None)` what backward needs: inputs as Tensors, outputs as raw arrays
    without   positions of inputs that are in a graph but have no formula: no edge leads there
    """

    __slots__ = ("pick", "without")

    def __init__(self, pick: Callable[[tuple[Any, ...]], tuple[Any, ...]], without: tuple[int, ...]) -> None:
        self.pick, self.without = pick, without


def plan_of(op: Op, pattern: int) -> Plan | None:
    """The plan for inputs that need a gradient where `pattern` has a bit; None where no formula serves them. Remembered by the node class.

    A variadic row has one plan, whatever the pattern.
    """
    plans, targets = op.node.plans, op.node.targets
    if op.variadic:
        kept_inputs, kept = len(op.kept_inputs), [op.outputs.index(name) - len(op.outputs) - 1 for name in op.kept_outputs]
        after = len(op.outputs) + 1
        plans[pattern] = plan = Plan(lambda v: (*((v[:-after],) * kept_inputs), *(v[i] for i in kept)), ()) if op.steps else None
        return plan
    asked: set[str] = set()
    for step in op.steps:
        if any(pattern >> op.inputs.index(t) & 1 for t in step.targets):
            asked.update(step.wants)
    positions = [op.inputs.index(name) if name in asked else -1 for name in op.kept_inputs]
    positions += [op.outputs.index(name) - len(op.outputs) - 1 if name in asked else -1 for name in op.kept_outputs]
    present = [i for i in range(len(op.inputs)) if pattern >> i & 1]
    useful = any(i in targets for i in present)
    plans[pattern] = plan = Plan(_chooser(positions), tuple(i for i in present if i not in targets)) if useful else None
    return plan


def with_back(node: type[Node], op: Op) -> type[Node]:
    """Give a row's node class its `back`, and `targets`, the positions of the inputs that have a formula."""
    node.plans = {}
    names = [t for step in op.steps for t in step.targets]
    node.targets = frozenset(range(4096)) if op.variadic and names else frozenset(op.inputs.index(n) for n in names)
    simple = op.promote is not None and not op.params and len(op.outputs) == 1 and not op.variadic
    plain = simple and all(w == "g" or w in op.kept_inputs or w in op.kept_outputs for s in op.steps for w in s.wants)
    if plain and len(op.inputs) <= 2 and len(op.steps) == len(op.inputs) and not any(s.joint for s in op.steps):
        steps = sorted(op.steps, key=lambda s: op.inputs.index(s.targets[0]))
        node.back = _back_of_one(op, steps[0]) if len(steps) == 1 else _back_of_two(op, steps)  # type: ignore[method-assign]
    else:
        node.back = _back_of_any(op)  # type: ignore[method-assign]
    return node


def narrow(node: type[Node]) -> type[Node]:
    """The class for nodes of half types: one whose backward runs in float32 where it would round more than once."""
    op, taken = node.op, unpack_all if node is node.op.node.packing else unpack
    if op.autocast == "lower":  # products sum in float32 by themselves
        node.narrow = node
        return node
    plain, wide = node.back, _back_of_any(op, taken, widened)
    often = roundings_of(op)
    if often > 1:
        back = wide
    elif often == 1 and op.promote is not None and len(op.inputs) > 1 and not any(s.joint for s in op.steps):

        def back(n: Any, g: Any) -> Any:
            """Where an input was broadcast, its gradient is also summed."""
            summed = any([s is not None and s.shape != n.output_specs[0].shape for s in n.specs])  # noqa: C419 - as above
            return (wide if summed else plain)(n, g)

    else:
        back = plain
    node.narrow = type(node.__name__, (node,), {"__slots__": (), "back": back})
    node.narrow.narrow = node.narrow
    return node.narrow


def conjugate(node: type[Node]) -> type[Node]:
    """The class for nodes of complex results.

    As in PyTorch, the gradient of a real loss L is ∂L/∂Re x + i ∂L/∂Im x. Through a holomorphic function it is then g times the conjugate
    of the derivative, and as formulas have real coefficients, that is what they give for the conjugates of what they ask for besides g.
    A formula that asks for nothing else, or is written for complex numbers (`Op.complex` is "own"), is used as it is.
    """
    op, taken = node.op, unpack_all if node is node.op.node.packing else unpack
    gradients = {"g", *(f"g_{name}" for name in op.outputs)}
    plain = gradients | {f"{name}_spec" for name in (*op.inputs, *op.outputs)}
    asks = any((w not in plain and w not in op.params) or w == "exponent" for step in op.steps for w in step.wants)
    if op.complex != "holomorphic" or not asks:
        node.conjugate = node
        return node
    back = _back_of_any(op, taken, conjugated, len(op.outputs))
    node.conjugate = type(node.__name__, (node,), {"__slots__": (), "back": back})
    node.conjugate.conjugate = node.conjugate
    return node.conjugate


def conjugated(value: Any) -> Any:
    """What a formula gets for a value: complex tensors and numbers conjugated."""
    if isinstance(value, Differentiable):
        return value.conj() if value._array.dtype in COMPLEX else value  # type: ignore[attr-defined]
    if type(value) is complex:
        return value.conjugate()
    return tuple(map(conjugated, value)) if type(value) is tuple else value


def packing(op: Op) -> type[Node]:
    """The row's node class for what is recorded under `saved_tensors_hooks`: it unpacks what it keeps."""
    node: type[Node] = op.node
    if node.packing is None:
        own = {"__slots__": (), "back": _back_of_any(op, unpack_all), "narrow": None, "conjugate": None}
        node.packing = type(node.__name__, (node,), own)
    return node.packing


def _picker(order: list[str], wants: tuple[str, ...]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    return _chooser([order.index(w) for w in wants])


def _chooser(positions: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """The elements at these positions, always as a tuple."""
    if not positions:
        return lambda values: ()
    if len(positions) == 1:
        (only,) = positions
        return lambda values: (values[only],)
    return itemgetter(*positions)


def unpack(n: Any) -> tuple[Any, ...]:
    """The kept values as formulas see them: checked against in-place changes, outputs wrapped."""
    saved = n.saved
    if saved is None:
        raise errors.freed(n)
    if not saved:
        return ()
    op = n.op
    inputs = len(op.kept_inputs)
    for i in range(inputs):
        value = saved[i]
        if type(value) is tuple:
            for x in value:
                if getattr(x, "_meta", None) is not None:
                    check_input(n, i, x)
        elif getattr(value, "_meta", None) is not None:
            check_input(n, i, value)
    if len(saved) == inputs:
        return saved
    found = list(saved)
    for i in range(inputs, len(saved)):
        if found[i] is not None:
            found[i] = output(n, found[i], op.outputs.index(op.kept_outputs[i - inputs]))
    return tuple(found)


def check_input(n: Any, position: int, x: Any) -> None:
    """Raise if a kept input was written in place since (also by the operation itself)."""
    version = x._meta.version
    if version is not None and version.written >= n.seq:
        raise errors.modified(n, f"the input {n.op.kept_inputs[position]!r} of shape {x._array.shape}", version)


def output(n: Any, array: Any, index: int) -> Any:
    """A kept output as a Tensor again: with its edge if backward itself is being recorded."""
    versions = n.versions
    if versions is not None and index in versions and versions[index].written > n.seq:
        raise errors.modified(n, f"the output of shape {array.shape}", versions[index])
    t = new(n.tensor_class)
    t._array = array
    t._meta = None
    t._edge = (n if n.op.result is None else Edge(n, index)) if current().recording else None
    return t


def _back_of_one(op: Op, step: Any) -> Callable[..., Any]:
    pick = _picker(["g", *op.kept_inputs, *op.kept_outputs], step.wants)
    formula = step.formula
    if step.wants == ("g", op.inputs[0]):

        def back_from_input(n: Any, g: Any) -> Any:
            saved = n.saved  # read once: another thread may free it
            if saved is None:
                raise errors.freed(n)
            (x,) = saved
            if x._meta is not None:
                check_input(n, 0, x)
            return (formula(g, x),)

        return back_from_input
    if step.wants == ("g", op.outputs[0]):

        def back_from_output(n: Any, g: Any) -> Any:
            saved = n.saved
            if saved is None:
                raise errors.freed(n)
            if n.versions is not None:
                return (formula(g, output(n, saved[0], 0)),)
            y = new(n.tensor_class)  # `output`, written out for the common case
            y._array = saved[0]
            y._meta = None
            y._edge = n if current().recording else None
            return (formula(g, y),)

        return back_from_output

    def back(n: Any, g: Any) -> Any:
        return (formula(*pick((g, *unpack(n)))),)

    return back


def _back_of_two(op: Op, steps: Any) -> Callable[..., Any]:
    order = ["g", *op.kept_inputs, *op.kept_outputs]
    first, second = steps[0].formula, steps[1].formula
    pick_first, pick_second = _picker(order, steps[0].wants), _picker(order, steps[1].wants)
    a, b = op.inputs
    crossed = steps[0].wants == ("g", b) and steps[1].wants == ("g", a)

    def back_crossed(n: Any, g: Any) -> Any:
        """As for a product: each input's gradient asks for the other input."""
        saved = n.saved
        if saved is None:
            raise errors.freed(n)
        y, x = saved
        ea, eb = n.edges
        da = db = None
        if ea is not None:
            if isinstance(y, Differentiable) and y._meta is not None:
                check_input(n, 0, y)
            da = first(g, y)
        if eb is not None:
            if isinstance(x, Differentiable) and x._meta is not None:
                check_input(n, 1, x)
            db = second(g, x)
        specs = n.specs
        if specs is None:
            return da, db
        return None if da is None else _conform(da, specs[0]), None if db is None else _conform(db, specs[1])

    def back(n: Any, g: Any) -> Any:
        values = (g, *unpack(n)) if len(order) > 1 else (g,)
        ea, eb = n.edges
        x = None if ea is None else first(*pick_first(values))
        y = None if eb is None else second(*pick_second(values))
        specs = n.specs
        if specs is None:
            return x, y
        return None if x is None else _conform(x, specs[0]), None if y is None else _conform(y, specs[1])

    return back_crossed if crossed and op.kept_inputs == (b, a) else back


def _conform(gradient: Any, spec: Any) -> Any:
    """The one place where a gradient gets its input's shape and dtype."""
    if gradient._array.shape != spec.shape:
        gradient = gradient.sum_to_size(spec.shape)
    if gradient._array.dtype == spec.dtype:
        return gradient
    if gradient._array.dtype in COMPLEX and spec.dtype not in COMPLEX:  # of a real input
        gradient = gradient.real
    return gradient if gradient._array.dtype == spec.dtype else gradient.to(spec.dtype)


def _back_of_any(
    op: Op, taken: Callable[[Any], tuple[Any, ...]] = unpack, seen: Callable[[Any], Any] | None = None, unseen: int = 0
) -> Callable[..., Any]:
    """taken: how kept values are unpacked. seen: what a formula gets in place of each value that it asks for, but for the first `unseen`
    of them, the outputs' gradients."""
    order = [*(["g"] if len(op.outputs) == 1 else [f"g_{o}" for o in op.outputs])]
    order += [*op.kept_inputs, *op.kept_outputs]
    params = list(dict.fromkeys(w for s in op.steps for w in s.wants if w in op.params))
    specs = list(dict.fromkeys(w for s in op.steps for w in s.wants if w not in order and w not in op.params))
    sources = [_spec_source(op, name[: -len("_spec")]) for name in specs]
    order += [*params, *specs]
    steps = [(s.formula, _picker(order, s.wants), [op.inputs.index(t) for t in s.targets], s.joint) for s in op.steps]
    optional = {w for s in op.steps for w in s.optional}
    asked = {w for s in op.steps for w in s.wants}
    zeros = [i for i, name in enumerate(op.outputs) if f"g_{name}" in asked and f"g_{name}" not in optional]

    def values(n: Any, g: Any) -> tuple[Any, ...]:
        """What formulas may ask for, in the given order."""
        saved = taken(n)
        found = (*filled(n, g), *saved) if op.result is not None else (g, *saved)
        if params:
            found += tuple(map(n.params.get, params))
        for source in sources:
            found += (source(n),)
        return found if seen is None else (*found[:unseen], *map(seen, found[unseen:]))

    def filled(n: Any, g: Any) -> list[Any]:
        """Zeros for outputs that nobody used, where a formula cannot do without."""
        gradients = list(g)
        for i in zeros:
            if gradients[i] is None:
                shape, dtype = n.output_specs[i]
                gradients[i] = next(x for x in gradients if x is not None).new_zeros(shape, dtype=dtype)
        return gradients

    def back(n: Any, g: Any) -> Any:
        have = values(n, g)
        edges, specs = n.edges, n.specs
        count = len(edges)
        found: list[Any] = [None] * count
        for formula, pick, targets, joint in steps:
            if not joint:
                (t,) = targets
                if t < count and edges[t] is not None:
                    value = formula(*pick(have))
                    if value is not None:
                        found[t] = value if specs is None else _conform(value, specs[t])
            elif any([t < count and edges[t] is not None for t in targets]):  # noqa: C419 - a generator takes twice the time
                for t, value in zip(targets, formula(*pick(have)), strict=True):
                    if t < count and edges[t] is not None and value is not None:
                        found[t] = value if specs is None else _conform(value, specs[t])
        return found

    def back_variadic(n: Any, g: Any) -> Any:
        formula, pick, _, _ = steps[0]
        parts = formula(*pick(values(n, g)))
        return [None if e is None or x is None else _conform(x, s) for e, x, s in zip(n.edges, parts, n.specs, strict=True)]

    return back_variadic if op.variadic and steps else back


def _spec_source(op: Op, name: str) -> Callable[[Any], Any]:
    """Where a node has the Spec of an input (of all, for a variadic row) or an output."""
    if name in op.outputs:
        position = op.outputs.index(name)
        return lambda n: n.output_specs[position]
    if op.variadic:
        return lambda n: n.specs
    position = op.inputs.index(name)
    return lambda n: n.specs[position]

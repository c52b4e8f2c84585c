"""A sum of matrix products, such as the weight gradient of a recurrent layer, becomes one product of longer matrices.

A₁B₁ + A₂B₂ + … = [A₁ A₂ …] [B₁; B₂; …]: the result is written once, and one long product runs faster than many short ones. Products of a
half type that add up in a wide one are not rounded in between.
"""

from __future__ import annotations

from gradlab import ops
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import Rewriting, sum_of

FEWEST = 3


def gather_products(graph: Graph) -> Graph:
    """Replace sums of at least FEWEST products of matrices of equal outer sizes."""
    work = Rewriting(graph)
    orders = [[x.id for x in c.inputs] for c in work.calls if c.op is ops.movement.cat]
    for call in work.sums():
        products: list[Call] = []
        others: list[Value] = []
        for value in work.terms(call.outputs[0]):
            maker = work.maker_of_term(value)
            if maker is not None and _is_product_of_matrices(maker):
                products.append(maker)
            else:
                others.append(value)
        if len(products) >= FEWEST and len({p.outputs[0].spec.dtype for p in products}) == 1:
            products = _as_joined_already(products, orders)
            work.replace(call, _one(work, call, products, others))
    return work.finish()


def _is_product_of_matrices(call: Call) -> bool:
    return call.op is ops.linalg.matmul and all(isinstance(x, Value) and len(x.spec.shape) == 2 for x in call.inputs)


def _as_joined_already(products: list[Call], orders: list[list[int]]) -> list[Call]:
    """The products in the order in which the graph joins their second factors anyway, where it does: those need not be joined twice."""
    by_factor = {p.inputs[1].id: p for p in products}
    for order in orders:
        if len(order) == len(products) == len(by_factor) and set(order) == by_factor.keys():
            return [by_factor[number] for number in order]
    return products


def _one(work: Rewriting, call: Call, products: list[Call], others: list[Value]) -> list[Call]:
    """The calls of the joined product, and the sum with what else there is."""
    calls: list[Call] = []
    product = ops.linalg.matmul if products[0].outputs[0].spec.dtype == call.outputs[0].spec.dtype else ops.linalg.wide_matmul

    def joined(values: list[Value], dim: int) -> Value:
        """The values one behind the other; transposed ones are joined before they are transposed, so that rows are copied whole."""
        makers = [work.maker.get(v.id) for v in values]
        turned = all(m is not None and m.op is ops.movement.t for m in makers)
        parts = [m.inputs[0] for m in makers] if turned else values  # type: ignore[union-attr]
        calls.append(work.call(ops.movement.cat, parts, {"dim": 1 - dim if turned else dim}, call.position))
        if turned:
            calls.append(work.call(ops.movement.t, (calls[-1].outputs[0],), {}, call.position))
        return calls[-1].outputs[0]

    a = joined([p.inputs[0] for p in products], 1)
    b = joined([p.inputs[1] for p in products], 0)
    if not others and _only_turned(work, call.outputs[0]):  # then it is made so: B^T A^T
        calls.extend([work.call(ops.movement.t, (factor,), {}, call.position) for factor in (b, a)])
        turned = work.call(product, (calls[-2].outputs[0], calls[-1].outputs[0]), {}, call.position)
        return [*calls, turned, work.call(ops.movement.t, turned.outputs, {}, call.position, call.outputs[0])]
    calls.append(work.call(product, (a, b), {}, call.position, call.outputs[0] if not others else None))
    return [*calls, *sum_of(work, [calls[-1].outputs[0], *others], call.outputs[0], call.position)]


def _only_turned(work: Rewriting, value: Value) -> bool:
    """Whether all that needs a value needs its transpose."""
    readers = [c for c in work.calls for x in c.inputs if isinstance(x, Value) and x.id == value.id]
    return len(readers) == work.uses[value.id] and all(c.op is ops.movement.t for c in readers)

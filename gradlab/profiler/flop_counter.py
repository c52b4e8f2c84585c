"""How many floating-point operations products, convolutions and attention take, by module."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gradlab.autograd.mode import current, enter, leave
from gradlab.profiler.counting import flops, shape_of

_COUNTED = ("matmul", "wide_matmul", "linear", "convolution", "scaled_dot_product_attention", "grouped_mm", "spmm")  # as names begin
_SEQUENCES = ("lstm_sequence", "gru_sequence", "rnn_sequence")  # all steps of a layer, which has its products within


class FlopCounterMode:
    """Counts within its block: `with FlopCounterMode() as counter: model(x).sum().backward()`, then `counter.get_total_flops()`.

    A multiplication and an addition are two operations; elementwise ones and biases do not count. mods: accepted; modules are
    found by the calls. depth: of the table. display: print it at the end. custom_mapping: NotImplementedError.
    What a compiled function does is not seen; count an eager call.

    >>> from gradlab.profiler.flop_counter import FlopCounterMode
    >>> with FlopCounterMode(display=False) as counter:
    ...     _ = gl.nn.Linear(3, 4)(gl.ones(2, 3))
    >>> counter.get_total_flops()
    48
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: Any = None) -> None:
        if custom_mapping:
            raise NotImplementedError("FlopCounterMode: custom_mapping is not offered; add the operations of your own yourself")
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.node: Any = None  # in backward, the node whose gradients are computed; the walk sets it
        self._token: Any = None

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self._token = enter(current().replace(observer=self))
        return self

    def __exit__(self, *_: object) -> None:
        leave(self._token)
        if self.display:
            print(self.get_table())

    def __call__(self, op: Any, inputs: Any, result: Any, params: Any) -> None:
        """After an operation; the mode's observer."""
        if not op.name.startswith((*_COUNTED, *_SEQUENCES)):
            return
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        shapes = [shape_of(x) for x in inputs]
        if op.name.startswith(_SEQUENCES):
            shapes[0] = None  # without what is done for each gate
        elif op.name.startswith(("matmul", "wide_matmul", "linear", "convolution")):
            shapes = shapes[:2]  # without a bias
        count = flops(op, shapes, [shape_of(x) for x in outputs])
        scope = current().scope if self.node is None else self.node.scope
        path: list[str] = []
        for each in [] if scope is None else scope.path():
            path.append(each.name or each.module)
            self.flop_counts[".".join(path)][op.name] += count
        self.flop_counts["Global"][op.name] += count

    def get_total_flops(self) -> int:
        """All of them."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """By module's dotted name, "Global" for all, and by operation."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """A line for each module down to `depth`, and below it for its operations."""
        whole, most = self.get_total_flops(), self.depth if depth is None else depth
        rows = [("Module", "FLOP", "% Total")]
        for name in sorted(self.flop_counts, key=lambda name: (name != "Global", name)):
            level = 0 if name == "Global" else name.count(".") + 1
            if level <= most:
                counts = self.flop_counts[name]
                rows += [(" " * level + title, f"{n:,}", f"{100 * n / max(whole, 1):.2f}%") for title, n in
                         ((name, sum(counts.values())), *((f" - {op}", n) for op, n in counts.items()))]  # fmt: skip
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows)

"""The errors of backward, in words that say what happened, where, and what to do."""

from __future__ import annotations

import traceback
from typing import Any

from gradlab import call_site
from gradlab.autograd import graph_cuts
from gradlab.autograd.base import Version
from gradlab.dtype import INEXACT


class NonFiniteError(RuntimeError):
    """An operation made a NaN or an infinity of finite inputs (only under `detect_anomaly`)."""


class GraphError(RuntimeError):
    """A node cannot compute its gradients: what it kept is gone or was overwritten."""


def freed(node: Any) -> RuntimeError:
    return GraphError(
        f"{node.name()}: backward was already run through this graph and the values it keeps were freed. "
        f"Call backward(retain_graph=True) the first time if you need a second pass.{_where(node)}"
    )


def modified(node: Any, what: str, version: Version) -> RuntimeError:
    place = call_site.locate(*version.place)
    by = f"\n  modified at: {place}" if place is not None else ""
    return GraphError(
        f"{node.name()}: {what}, which backward needs, was modified by an in-place operation after it was recorded. "
        f"Use the out-of-place form there, or clone() the tensor before it is modified.{_where(node)}{by}"
    )


def _where(node: Any) -> str:
    place = node.forward_position
    return f"\n  recorded at: {place}" if place is not None else ""


def remember(node: Any, frame: Any) -> None:
    """Under detect_anomaly: keep with a node the user's part of the stack that recorded it, as text."""
    lines = traceback.StackSummary.from_list([f for f in traceback.extract_stack(frame) if not call_site.inside[f.filename]]).format()
    node.metadata["traceback_"] = lines


def explain(error: Exception, node: Any, newest_first: list[Any]) -> None:
    """Add to an error of the walk which operation was being differentiated, and where it was recorded, unless it says so already."""
    if node is None:
        return
    kept = node.metadata.get("traceback_")
    if kept:
        error.add_note(f"{node.name()}: traceback of the forward call (most recent call last):\n{''.join(kept).rstrip()}")
    elif isinstance(error, NonFiniteError):
        error.add_note("for the whole traceback of the forward call, let detect_anomaly() be on in the forward, too")
    place = node.forward_position
    if place is not None:
        if not isinstance(error, GraphError):
            error.add_note(f"in {node.name()}, recorded at: {place}")
        return
    # A step inside a library function keeps no line of the user's. The operations around it do.
    before = next((p for n in newest_first if n.seq < node.seq and (p := n.forward_position) is not None), None)
    after = next((p for n in reversed(newest_first) if n.seq > node.seq and (p := n.forward_position) is not None), None)
    inside = f" in gradlab's {node.code.co_qualname}()" if node.code is not None else ""
    text = f"\n  recorded{inside}"
    if after is not None:
        text += f", at or before: {after}"
    if before is not None and before != after:
        text += f"{',' if after is None else ''}\n  {'at or ' if after is None else ''}after: {before}"
    if isinstance(error, GraphError):
        error.args = (f"{error}{text}",)
    else:
        error.add_note(f"in {node.name()}{text}")


def wrong_gradient(name: str, expected: tuple[int, ...], got: tuple[int, ...], what: str = "backward") -> RuntimeError:
    return RuntimeError(
        f"{what}: the gradient given has shape {got}, but the tensor{name} has shape {expected}; they must be the same"
    )


MIXED_UP = "; this output is a leaf: were outputs and inputs exchanged? The order is grad(outputs, inputs)"


def not_scalar(shape: tuple[int, ...], hint: str = "", edge: Any = None) -> RuntimeError:
    node = getattr(edge, "node", None)
    return RuntimeError(
        f"grad can be implicitly created only for scalar outputs, but this tensor has shape {shape}. "
        f"Reduce it to one number first (for example .sum() or .mean()), or say how much each element counts: "
        f"backward(gradient=v) with v of shape {shape} computes the vector-Jacobian product{hint}{_where(node) if node is not None else ''}"
    )


def not_real(dtype: Any) -> RuntimeError:
    return RuntimeError(
        f"grad can be implicitly created only for real scalar outputs but got {dtype}: a loss is one real number. Make one of it, for "
        f"example y.abs() or y.real, or say what its gradient is: backward(gradient=v)"
    )


def wrong_kind(what: str, output: Any, gradient: Any) -> RuntimeError:
    return RuntimeError(
        f"{what}: for complex tensors, the gradient and the output are required to be of the same dtype, but the output is of {output} and "
        f"the gradient of {gradient}"
    )


def no_graph(tensor: Any, recording: bool = True) -> RuntimeError:
    dtype = tensor._array.dtype
    if dtype not in INEXACT:
        return RuntimeError(
            f"this tensor does not require grad: it holds {dtype}, and only floating point numbers have gradients. Integers and truth "
            f"values come of comparisons, argmax(), long() and the like, through which nothing can be differentiated; numbers that a model "
            f"shall learn are made with .float() before requires_grad_()"
        )
    off = "" if recording else "; recording is off at this moment, and was perhaps off when the tensor was computed"
    return RuntimeError(
        "this tensor does not require grad and has no grad_fn, so there is nothing to differentiate: no tensor it was "
        "computed from requires grad. Make the leaves with requires_grad=True (or call requires_grad_()), and check that "
        f"nothing between them and this tensor ran under no_grad() or went through detach(){off}{graph_cuts.because()}"
    )


def leaf_in_place(name: str, what: str) -> RuntimeError:
    return RuntimeError(
        f"{name}: {what} that requires grad is being used in an in-place operation. "
        f"Update parameters inside `with gl.no_grad():`, or use the out-of-place form"
    )


def quiet_view(name: str) -> RuntimeError:
    return RuntimeError(
        f"{name}: this tensor is a view that was made under no_grad() (or inside a Function's forward) and is being written in place "
        f"with recording on; the gradient of the write would be lost. "
        f"Make the view where recording is on, or write it under no_grad() too, or clone() it first"
    )


def not_writable(name: str, shape: tuple[int, ...]) -> RuntimeError:
    return RuntimeError(
        f"{name}: this tensor of shape {shape} cannot be written in place: it was expanded (several of its elements are one memory "
        f"location) or its memory is read-only; clone() it first"
    )

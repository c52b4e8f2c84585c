"""The errors of backward, in words that say what happened, where, and what to do."""

from __future__ import annotations

from typing import Any

from gradlab.autograd import position
from gradlab.autograd.base import Version


class NonFiniteError(RuntimeError):
    """An operation made a NaN or an infinity of finite inputs (only under `detect_anomaly`)."""


def where(node: Any) -> str:
    """"\\n  forward call: file, line", or nothing if it is not known."""
    place = node.forward_position
    return f"\n  recorded at: {place}" if place is not None else ""


def freed(node: Any) -> RuntimeError:
    return RuntimeError(
        f"{node.name()}: backward was already run through this graph and the values it keeps were freed. "
        f"Call backward(retain_graph=True) the first time if you need a second pass.{where(node)}"
    )


def modified(node: Any, what: str, version: Version) -> RuntimeError:
    place = position.locate(version.code, version.lasti, version.scope)
    by = f"\n  modified at: {place}" if place is not None else ""
    return RuntimeError(
        f"{node.name()}: {what}, which backward needs, was modified by an in-place operation after it was recorded. "
        f"Use the out-of-place form there, or clone() the tensor before it is modified.{where(node)}{by}"
    )


def wrong_gradient(name: str, expected: tuple[int, ...], got: tuple[int, ...], what: str = "backward") -> RuntimeError:
    return RuntimeError(
        f"{what}: the gradient given has shape {got}, but the tensor{name} has shape {expected}; they must be the same"
    )


def not_scalar(shape: tuple[int, ...]) -> RuntimeError:
    return RuntimeError(
        f"grad can be implicitly created only for scalar outputs, but this tensor has shape {shape}. "
        f"Reduce it to one number first (for example .sum() or .mean()), or say how much each element counts: "
        f"backward(gradient=v) with v of shape {shape} computes the vector-Jacobian product"
    )


def no_graph() -> RuntimeError:
    return RuntimeError(
        "this tensor does not require grad and has no grad_fn, so there is nothing to differentiate: no tensor it was "
        "computed from requires grad. Make the leaves with requires_grad=True (or call requires_grad_()), and check that "
        "nothing between them and this tensor ran under no_grad() or went through detach()"
    )


def leaf_in_place(name: str, what: str) -> RuntimeError:
    return RuntimeError(
        f"{name}: {what} that requires grad is being used in an in-place operation. "
        f"Update parameters inside `with gl.no_grad():`, or use the out-of-place form"
    )


def quiet_view(name: str) -> RuntimeError:
    return RuntimeError(
        f"{name}: this tensor is a view that was made under no_grad() and is being written in place with recording on; the gradient "
        f"of the write would be lost. Make the view where recording is on, or write it under no_grad() too, or clone() it first"
    )


def not_writable(name: str, shape: tuple[int, ...]) -> RuntimeError:
    return RuntimeError(
        f"{name}: this tensor of shape {shape} cannot be written in place: it was expanded (several of its elements are one memory "
        f"location) or its memory is read-only; clone() it first"
    )

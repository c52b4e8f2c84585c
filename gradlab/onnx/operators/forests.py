"""Ensembles of decision trees (domain ai.onnx.ml): all trees walk at once, one level in each step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.onnx.importing import Node
from gradlab.onnx.operators.classical import chosen, labels_of, learned, paired, rows_of, transformed

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
LEAF = len(MODES) - 1
DEEPEST = 512
COMPARE = (gl.le, gl.lt, gl.ge, gl.gt, gl.eq, gl.ne)


def numbers(node: Node, name: str, dtype: Any) -> Any:
    """A list attribute, or the tensor that newer opsets have in its place."""
    stored = node.get(f"{name}_as_tensor")
    return np.asarray(node.get(name, ()), dtype) if stored is None else np.asarray(stored).reshape(-1)


def laid_out(modes: Any, features: Any, values: Any, sides: Any, roots: Any, track: Any, weights: Any) -> dict[str, Any]:
    """The tables of a walk. A leaf leads to itself, so that shallow trees wait for deep ones. weights: [nodes, targets]."""
    leaf, here, (true, false) = modes == LEAF, np.arange(len(modes)), sides
    true, false = np.where(leaf, here, true), np.where(leaf, here, false)
    level, depth = {int(r) for r in roots}, 0
    while True:
        level = {int(n) for at in level if not leaf[at] for n in (true[at], false[at])}
        if not level:
            break
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"a tree is deeper than {DEEPEST} or runs in a circle")
    found = {"roots": roots, "features": features, "values": values, "true": true, "false": false, "weights": weights}
    if track.any():
        found["track"] = track.astype(bool)
    kinds = sorted(set(modes[~leaf].tolist()))
    if len(kinds) > 1:
        found["modes"] = modes
    found["steps"] = np.array([depth, *kinds], np.int64)
    return found


def old_tables(node: Node) -> dict[str, Any]:
    """Of TreeEnsembleClassifier and TreeEnsembleRegressor, whose nodes are named by tree and number."""
    owner = "class" if node.kind == "TreeEnsembleClassifier" else "target"
    trees, ids = (np.asarray(node.get(f"nodes_{n}"), np.int64) for n in ("treeids", "nodeids"))
    place = {(int(t), int(n)): i for i, (t, n) in enumerate(zip(trees, ids, strict=True))}
    modes = np.array([MODES.index(m) for m in node.get("nodes_modes")])
    leaf = modes == LEAF
    sides = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        wanted = np.asarray(node.get(name), np.int64)
        sides.append(np.array([i if leaf[i] else place[int(trees[i]), int(wanted[i])] for i in range(len(trees))], np.int64))
    reached = {int(n) for side in sides for i, n in enumerate(side) if not leaf[i]}
    roots = np.array([i for i in range(len(trees)) if i not in reached], np.int64)
    if len(roots) != len(np.unique(trees)) or len(roots) != len(np.unique(trees[roots])):
        raise ValueError("a tree has no root, or several: its branches run in a circle")
    values = numbers(node, "nodes_values", np.float32)
    each, targets = numbers(node, f"{owner}_weights", np.float32), np.asarray(node.get(f"{owner}_ids"), np.int64)
    weights = np.zeros((len(trees), targets_of(node)), each.dtype)
    at = [place[int(t), int(n)] for t, n in zip(node.get(f"{owner}_treeids"), node.get(f"{owner}_nodeids"), strict=True)]
    np.add.at(weights, (np.asarray(at, np.int64), targets), each)
    scored = np.zeros(weights.shape, bool)
    scored[np.asarray(at, np.int64), targets] = True
    track = np.asarray(node.get("nodes_missing_value_tracks_true", None) or np.zeros(len(trees)), np.int64)
    features = np.asarray(node.get("nodes_featureids"), np.int64)
    found = laid_out(modes, np.where(leaf, 0, features), values, sides, roots, track, weights)
    if owner == "class" and not scored[leaf].all():
        found["scored"] = scored
    return found


def targets_of(node: Node) -> int:
    """How many scores a row gets."""
    if node.kind == "TreeEnsembleClassifier":
        return max(len(labels_of(node)), 1 + max(node.get("class_ids"), default=0))
    return int(node.get("n_targets", 1))


def new_tables(node: Node) -> dict[str, Any]:
    """Of TreeEnsemble (opset 5), whose leaves are numbered on their own: here they follow the inner nodes."""
    order = (0, 1, 2, 3, 4, 5, 6)  # BRANCH_LEQ, LT, GTE, GT, EQ, NEQ, MEMBER
    modes = np.array([order[int(m)] for m in np.asarray(node.get("nodes_modes")).reshape(-1)])
    values = np.asarray(node.get("nodes_splits")).reshape(-1)
    inner = len(modes)
    leaves = np.asarray(node.get("leaf_weights")).reshape(-1)
    sides = []
    for way in ("true", "false"):
        ids, is_leaf = np.asarray(node.get(f"nodes_{way}nodeids"), np.int64), np.asarray(node.get(f"nodes_{way}leafs"), np.int64)
        sides.append(np.concatenate([np.where(is_leaf, ids + inner, ids), np.zeros(len(leaves), np.int64)]))
    pad = np.zeros(len(leaves), np.int64)
    weights = np.zeros((inner + len(leaves), targets_of(node)), leaves.dtype)
    weights[inner + np.arange(len(leaves)), np.asarray(node.get("leaf_targetids"), np.int64)] = leaves
    track = np.concatenate([np.asarray(node.get("nodes_missing_value_tracks_true", None) or np.zeros(inner), np.int64), pad])
    found = laid_out(
        np.concatenate([modes, pad + LEAF]), np.concatenate([np.asarray(node.get("nodes_featureids"), np.int64), pad]),
        np.concatenate([values, pad.astype(values.dtype)]), sides, np.asarray(node.get("tree_roots"), np.int64), track, weights,
    )  # fmt: skip
    if 6 in modes:
        found["members"] = members(modes, np.asarray(node.get("membership_values")).reshape(-1), len(leaves))
    return found


def members(modes: Any, values: Any, leaves: int) -> Any:
    """The sets of BRANCH_MEMBER, [nodes, longest], NaN behind their ends: the file has them one behind another, each closed by a NaN."""
    sets: list[list[float]] = [[]]
    for v in values.tolist():
        if math.isnan(v):
            sets.append([])
        else:
            sets[-1].append(v)
    longest = max(map(len, sets), default=1) or 1
    found, following = np.full((len(modes) + leaves, longest), np.nan, np.asarray(values).dtype), iter(sets)
    for i in np.flatnonzero(modes == 6):
        mine = next(following)
        found[i, : len(mine)] = mine
    return found


TABLES = ("roots", "features", "values", "true", "false", "weights", "track", "modes", "steps", "members", "scored")


def arrays(node: Node) -> dict[str, Any]:
    """All tables under their names; those that a file does not need are empty."""
    found = new_tables(node) if node.kind == "TreeEnsemble" else old_tables(node)
    return {name: found.get(name, np.zeros(0, np.int64)) for name in TABLES}


FIXED = tuple(i + 1 for i, name in enumerate(TABLES) if name != "weights")


def walk(x: Any, tables: dict[str, Any], steps: list[int]) -> Any:
    """The leaves [rows, trees] of rows [rows, features]."""
    depth, *kinds = steps
    at = tables["roots"].unsqueeze(0).expand(x.shape[0], -1)
    for _ in range(depth):
        value, border = gl.gather(x, 1, tables["features"][at]), tables["values"][at]
        mode = tables["modes"][at] if len(kinds) > 1 else None
        yes: Any = None
        for kind in kinds:
            if kind < len(COMPARE):
                answer = COMPARE[kind](value, border)
            else:
                answer = (value.unsqueeze(-1) == tables["members"][at]).any(-1)
            yes = answer if yes is None or mode is None else gl.where(mode == kind, answer, yes)
        if tables["track"].shape[0]:
            yes = yes | (gl.isnan(value) & tables["track"][at])
        at = gl.where(yes, tables["true"][at], tables["false"][at])
    return at


def scores_of(node: Node, x: Any, given: tuple[Any, ...]) -> tuple[Any, Any]:
    """[rows, targets]: the leaves' weights, together; and which targets any of the leaves scores, None if they score all."""
    tables = dict(zip(TABLES, (gl.as_tensor(t, device=x.device) for t in given), strict=True))
    x = rows_of(x)
    steps = [int(n) for n in node.get("steps")]
    weights = tables["weights"]
    weights = weights.reshape(-1, weights.shape[-1])
    leaves = walk(x, {**tables, "values": tables["values"].to(x.dtype)}, steps)
    found, scored = weights[leaves], tables["scored"][leaves].any(1) if tables["scored"].shape[0] else None
    kind = node.get("aggregate_function", "SUM")
    kind = kind if isinstance(kind, str) else ("AVERAGE", "SUM", "MIN", "MAX")[int(kind)]
    if kind in ("MIN", "MAX"):
        return found.amin(1) if kind == "MIN" else found.amax(1), scored
    total = found.sum(1)
    return total / tables["roots"].shape[0] if kind == "AVERAGE" else total, scored


def tables_and_steps(node: Node) -> dict[str, Any]:
    """The arrays; how many steps a walk takes, and by which comparisons, stays with the node."""
    found = arrays(node)
    node.attributes["steps"] = found["steps"].tolist()
    return found


@learned("TreeEnsembleRegressor", "TreeEnsemble", arrays=tables_and_steps, fixed=FIXED)
def regressor(node: Node, x: Any, *given: Any) -> Any:
    scores, _ = scores_of(node, x, given)
    base = numbers(node, "base_values", np.float32)
    if base.size:
        scores = scores + gl.tensor(base, device=scores.device).to(scores.dtype)
    kind = node.get("post_transform", "NONE")
    kind = kind if isinstance(kind, str) else ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[int(kind)]
    return transformed(scores, kind)


@learned("TreeEnsembleClassifier", arrays=tables_and_steps, fixed=FIXED)
def classifier(node: Node, x: Any, *given: Any) -> Any:
    """The label of the class with the highest score, and the scores; of two classes a file may hold one score alone. A class that none of a
    row's leaves scores is not chosen, however far below zero the others are."""
    (scores, scored), labels, kind = scores_of(node, x, given), labels_of(node), node.get("post_transform", "NONE")
    base, ids = numbers(node, "base_values", np.float32), set(node.get("class_ids"))
    if len(labels) == 2 and len(ids) == 1:
        (only,) = ids
        s = scores[:, only : only + 1]
        s = s + float(base[-1]) if base.size else s
        positive = bool((numbers(node, "class_weights", np.float32) >= 0).all())
        index = (s[:, 0] > (0.5 if positive else 0.0)).to(gl.int64)
        if only == 1:
            both = transformed(gl.cat([gl.zeros_like(s), s], -1), kind)
        else:
            both = paired(s, kind, not positive)
        return chosen(node, labels, index), both
    if base.size:
        scores = scores + gl.tensor(base, device=scores.device).to(scores.dtype)
    eligible = scores if scored is None or base.size else scores.masked_fill(~scored, -math.inf)
    return chosen(node, labels, eligible.argmax(-1)), transformed(scores, kind)

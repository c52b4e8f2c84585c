"""What prepares rows of a table for a model (domain ai.onnx.ml): scaling, missing values, categories and labels, and maps of results.

Strings are NumPy arrays on the host; numbers are tensors and can be traced.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.autograd.mode import current
from gradlab.nn import functional as F
from gradlab.onnx.hosts import hosted
from gradlab.onnx.importing import Node, imports, read
from gradlab.onnx.operators.classical import LEARNING, learned, table


@learned("Scaler", arrays=table("offset", "scale"), fixed=(1, 2))
def scaler(node: Node, x: Any, offset: Any = None, scale: Any = None) -> Any:
    """(x - offset) · scale, in float32."""
    if "offset" not in node.attributes:
        offset, scale = None, offset
    y = x.to(gl.float32)
    y = y if offset is None else y - offset
    return y if scale is None else y * scale


@learned("Normalizer")
def normalizer(node: Node, x: Any) -> Any:
    """Rows divided by their norm: L1, L2, or MAX, the largest number (not its absolute value). Rows of zeros stay."""
    x, norm = x.to(gl.float32), node.get("norm", "MAX")
    if norm == "L1":
        return F.normalize(x, p=1.0, dim=-1, eps=1e-38)
    if norm == "L2":
        return F.normalize(x, p=2.0, dim=-1, eps=1e-19)
    largest = x.amax(-1, keepdim=True)
    return x / gl.where(largest == 0, 1.0, largest)


@learned("Binarizer")
def binarizer(node: Node, x: Any) -> Any:
    return (x > node.get("threshold", 0.0)).to(x.dtype)


@learned("Imputer")
def imputer(node: Node, x: Any) -> Any:
    """Puts others in the place of a missing value, which may be NaN."""
    whole = not x.is_floating_point()
    gone = node.get("replaced_value_int64", 0) if whole else node.get("replaced_value_float", 0.0)
    values = node.get("imputed_value_int64s" if whole else "imputed_value_floats")
    missing = gl.isnan(x) if math.isnan(gone) else x == gone
    return gl.where(missing, gl.tensor(np.asarray(values), device=x.device).to(x.dtype), x)


@learned("ArrayFeatureExtractor")
def features(node: Node, x: Any, at: Any) -> Any:
    """Columns by their numbers."""
    found = gl.index_select(x, -1, at.reshape(-1))
    return found.reshape(1, -1) if found.dim() == 1 else found


@learned("FeatureVectorizer")
def vectorizer(node: Node, *parts: Any) -> Any:
    """Columns beside each other, in float32."""
    rows = [p.reshape(1, -1) if p.dim() == 1 else p for p in parts]
    return gl.cat([r.to(gl.float32) for r in rows], 1)


# ---------------------------------------------------------------- categories

KINDS = ("strings", "int64s", "floats")


def column(node: Node, prefix: str) -> Any:
    """A list of keys or values, of whichever type the node has."""
    stored = node.get(f"{prefix}_tensor")
    if stored is not None:
        return np.asarray(stored).reshape(-1)
    for kind in KINDS:
        if len(found := node.get(f"{prefix}_{kind}", ())):
            return np.asarray(found, {"strings": str, "int64s": np.int64, "floats": np.float32}[kind])
    raise node.refuse(f"it has no {prefix}")


def fallback(node: Node, values: Any) -> Any:
    """What stands for keys that are unknown."""
    stored = node.get("default_tensor")
    if stored is not None:
        return np.asarray(stored).reshape(-1)[0]
    if values.dtype.kind == "U":
        return node.get("default_string", "_Unused")
    return node.get("default_int64", -1) if values.dtype.kind in "iu" else node.get("default_float", -0.0)


def looked_up(node: Node, x: Any, keys: Any, values: Any, default: Any) -> Any:
    """Values by their keys. Tensors are compared with every key, strings looked up on the host."""
    if isinstance(x, gl.Tensor) and keys.dtype.kind != "U" and values.dtype.kind != "U":
        table = gl.tensor(keys, device=x.device)
        wide = x.unsqueeze(-1)
        same = wide == table.to(x.dtype)
        if keys.dtype.kind == "f":
            same = same | (gl.isnan(wide) & gl.isnan(table))
        index = (same.to(gl.int64) * gl.arange(1, len(keys) + 1, device=x.device)).amax(-1)  # of the last that is the same; 0: none
        return gl.tensor(np.concatenate([np.asarray([default], values.dtype), values]), device=x.device)[index]
    array = np.asarray(read(node, x, "a category that is a string"))
    known = dict(zip(map(key, keys.tolist()), values.tolist(), strict=True))
    found = [known.get(key(v), default) for v in array.reshape(-1).tolist()]
    return np.array(found, str if values.dtype.kind == "U" else values.dtype).reshape(array.shape)


def key(value: Any) -> Any:
    """A number or a string as a key of a dict, where all NaN are one."""
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def encoder(node: Node, x: Any) -> Any:
    if "classes_strings" in node.attributes:  # the first version: places in a list
        classes = np.asarray(node.get("classes_strings"), str)
        places = np.arange(len(classes), dtype=np.int64)
        to_text = isinstance(x, gl.Tensor) or x.dtype.kind != "U"
        keys, values = (places, classes) if to_text else (classes, places)
    else:
        keys, values = column(node, "keys"), column(node, "values")
    return looked_up(node, x, keys, values, fallback(node, values))


def mapper(node: Node, x: Any) -> Any:
    texts, numbers = np.asarray(node.get("cats_strings"), str), np.asarray(node.get("cats_int64s"), np.int64)
    to_text = isinstance(x, gl.Tensor) or x.dtype.kind != "U"
    keys, values = (numbers, texts) if to_text else (texts, numbers)
    return looked_up(node, x, keys, values, fallback(node, values))


def one_hot(node: Node, x: Any) -> Any:
    """A one at each element's category, in float32; unknown ones have zeros alone if `zeros` is set."""
    categories = column(node, "cats")
    if categories.dtype.kind == "U":
        index = looked_up(node, x, categories, np.arange(len(categories), dtype=np.int64), -1)
        found = gl.tensor((index[..., None] == np.arange(len(categories))).astype(np.float32), device=node.device)
    else:
        x = gl.as_tensor(x)
        found = (x.to(gl.int64).unsqueeze(-1) == gl.tensor(categories, device=x.device)).to(gl.float32)
    if not node.get("zeros", 1) and current().tracer is None and bool((found.sum(-1) == 0).any()):
        raise node.refuse("an element is none of its categories, and zeros=0 forbids that")
    return found


for _name, _function in {"LabelEncoder": encoder, "CategoryMapper": mapper, "OneHotEncoder": one_hot}.items():
    hosted(_name, open_sizes=False)(_function)
    imports(f"{LEARNING}:{_name}", host=(0,))(_function)


# ---------------------------------------------------------------- maps


@imports(f"{LEARNING}:ZipMap")
def zip_map(node: Node, x: Any) -> Any:
    """A dict for each row: labels and tensors of one number. A file that is exported again has the tensor instead."""
    if not getattr(node.scope, "maps", True):
        return x
    labels = node.get("classlabels_int64s", ()) or node.get("classlabels_strings", ())
    rows = x.unbind(0) if x.dim() == 2 else (x,)
    return [dict(zip(labels, row.unbind(0), strict=True)) for row in rows]


@imports(f"{LEARNING}:DictVectorizer", host=(0,))
def dict_vectorizer(node: Node, x: Any) -> Any:
    """A map's values, or those of a list of maps, in the vocabulary's order; 0 for what is not there."""
    words = node.get("string_vocabulary", ()) or node.get("int64_vocabulary", ())
    rows = [x] if isinstance(x, Mapping) else list(x)
    numbers = [[row.get(w, 0.0) for w in words] for row in rows]
    plain = [[v.item() if isinstance(v, gl.Tensor) else v for v in row] for row in numbers]
    whole = all(isinstance(v, int) for row in rows for v in row.values())
    return gl.tensor(plain, dtype=gl.int64 if whole else gl.float32, device=node.device)


@imports(f"{LEARNING}:CastMap", host=(0,))
def cast_map(node: Node, x: Any) -> Any:
    """A map's values in the order of its keys, or, sparse, at the keys' places."""
    values = {int(k): float(v) for k, v in x.items()}
    if node.get("map_form", "DENSE") == "SPARSE":
        values = {k: values.get(k, 0.0) for k in range(node.get("max_map", 1))}
    found = [values[k] for k in sorted(values)]
    if node.get("cast_to", "TO_FLOAT") == "TO_STRING":
        return np.array([[str(v) for v in found]])
    dtype = gl.int64 if node.get("cast_to") == "TO_INT64" else gl.float32
    return gl.tensor([found], device=node.device).to(dtype)

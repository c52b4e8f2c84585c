"""None in a tensor's place: the error names the public function that was called, whatever part of it found the fault."""

import gradlab as gl

from kinds.calls import CALLS


def own_name(function):
    """A function's name; "" for a lambda, an operator, and for a method that takes its own tensor alone, which Python calls."""
    name = getattr(function, "__name__", "<lambda>")
    return "" if name == "<lambda>" or name.startswith("__") else name.strip("_").lower()


def test_none_for_a_tensor():
    unnamed, number = [], 0
    for call in CALLS:
        name = own_name(call.function)
        method = isinstance(getattr(gl.Tensor, name, None), type(call.function)) and getattr(gl.Tensor, name) is call.function
        if name in ("", "call") or hasattr(gl.nn.Module, name):
            continue
        try:
            args, options = call.tensors()
        except Exception:
            continue
        for i in range(len(args)):
            if (i == 0 and method) or not isinstance(args[i], gl.Tensor):
                continue
            try:
                call.function(*args[:i], None, *args[i + 1 :], **options)
            except Exception as error:
                number += 1
                if name not in str(error).lower() and "object has no attribute" not in str(error):
                    unnamed.append((name, i, str(error)))
    assert unnamed == []
    assert number > 1000, number

"""One wrong call and what comes of it: an answer, an error that says enough, or a fault. What is in force must be as before."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gradlab as gl

from kinds.bad.arguments import TENSORS, WRONG
from kinds.bad.subjects import Subject

TESTS = Path(__file__).parents[2]
CLEAN = (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError)
SECONDS = 2.0
DEVICES = frozenset({"0", "1", "2", "7", "97", "True", "False", "int64", "0-d int", "1 << 31", "1 << 40"})  # of a GPU, which takes time
gl.manual_seed(0)
FIRST = gl.rand(2).tolist()
# Python's own words about a call itself, or about an operator.
OF_A_CALL = re.compile(
    r"unexpected keyword|missing \d+ required|positional arguments? but|takes no (keyword )?arguments|multiple values for|positional-only"
    r"|keyword-only"
)
OF_AN_OPERATOR = re.compile(r"unsupported operand type|'(<|<=|>|>=)' not supported|bad operand")


class Hang(BaseException):
    pass


def rung(*_: Any) -> None:
    raise Hang


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Seconds of the process's own time: on a busy machine others take the rest. A call that waits for ever is ended by the parent."""
    before = signal.signal(signal.SIGPROF, rung)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def in_force() -> tuple[Any, ...]:
    """What a call must leave as it is."""
    return (
        gl.is_grad_enabled(),
        gl.is_inference_mode_enabled(),
        gl.get_default_dtype(),
        gl.get_default_device(),
        gl.is_autocast_enabled("cpu"),
        gl.are_deterministic_algorithms_enabled(),
        tuple(sorted(np.geterr().items())),
        os.getcwd(),
        gl.get_num_threads(),
    )


def restore(before: tuple[Any, ...]) -> None:
    gl.set_grad_enabled(before[0])
    gl.set_default_dtype(before[2])
    gl.set_default_device(None)
    gl.use_deterministic_algorithms(before[5])
    gl.set_autocast_enabled("cpu", before[4])
    gl.set_num_threads(before[8])
    gl.set_printoptions(profile="default")


def tensors(value: Any) -> list[Any]:
    if isinstance(value, gl.Tensor):
        return [] if value.is_meta or value.is_sparse else [value]
    if isinstance(value, (list, tuple)):
        return [t for part in value for t in tensors(part)]
    return []


def bits(values: list[Any]) -> list[bytes]:
    return [v.detach().numpy().tobytes() if v.dtype != gl.bfloat16 else v.detach().float().numpy().tobytes() for v in values]


def names(subject: Subject, message: str) -> bool:
    """Whether an error says which function it is about: by its name, or by that of a row, function or argument that it begins with."""
    bare = subject.bare.replace("()", "").split(" ")[0].strip("_").removesuffix("[]")
    low = message.lower()
    if bare.lower() in low or any(word.lower() in low for word in subject.words):
        return True
    if message.startswith("Cannot copy out of meta tensor") or (bare == "bool" and "truth value" in low):  # of what Python asks for
        return True
    return bool(re.match(r"\w[\w.]*(\(\))?: |\w[\w.]*\(\) |[\w ]+ is not offered for sparse", message))


def of_users(error: Exception) -> bool:
    """Whether code of users' raised an error, which passes as it is: here that of `tests/`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    return code is not None and code is not judged.__code__ and Path(code.co_filename).is_relative_to(TESTS)


def changes(subject: Subject) -> Iterator[tuple[str, str]]:
    """The places where a wrong value can stand: positions and keywords; and the values."""
    _, args, options = subject.make()
    for place in (*map(str, range(len(args))), *options, *subject.keywords):
        for word in WRONG:
            method = place == "0" and subject.name.startswith("Tensor.") and word not in TENSORS  # Python itself looks at those
            if not (method or (place == "device" and word in DEVICES)):
                yield place, word


def call(subject: Subject, place: str, word: str) -> tuple[Any, list[Any], dict[str, Any]]:
    function, args, options = subject.make()
    value = WRONG[word]()
    if place.isdigit():
        args[int(place)] = value
    else:
        options[place] = value
    return function, args, options


def judged(subject: Subject, place: str, word: str) -> tuple[str, str]:
    """The kind of what came of it ("ok", "clean" or a fault), and its words."""
    gl.manual_seed(0)
    before = in_force()
    function, args, options = call(subject, place, word)
    held = tensors([args, list(options.values())])
    first = bits(held)
    began = time.process_time()
    kind, text = "ok", ""
    try:
        with limited(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function(*args, **options)
            if inspect.isgenerator(result):
                next(result, None)
    except Hang:
        kind, text = "hang", "did not return"
    except CLEAN as error:
        text = f"{type(error).__name__}: {error}"
        kind = "clean"
        if type(error).__name__ in ("RecursionError",):
            kind = "RecursionError"
        elif not str(error) or str(error) == "None":
            kind = "wordless"
        elif OF_A_CALL.search(str(error)):
            pass
        elif subject.bare.startswith("__") and OF_AN_OPERATOR.match(str(error)):
            pass
        elif not names(subject, str(error)) and not of_users(error):
            kind = "unnamed"
    except Exception as error:
        kind, text = type(error).__name__, str(error)
        if of_users(error) or (kind == "BufferError" and "__dlpack" in subject.bare):  # as the array API standard wants it
            kind = "clean"
        if kind == "KeyError" and ("initial_lr" in text or "state dict" in text):  # as in PyTorch
            kind = "clean"
    took = time.process_time() - began
    if kind in ("ok", "clean") and took > 1.0:
        kind = "slow"
    now = in_force()
    if now != before:
        if not subject.name.startswith(("gl.set_", "gl.use_")):
            kind, text = "state", f"{before} became {now}; {text}"
        restore(before)
    try:
        if kind != "ok" and any(a != b for a, b, t in zip(first, bits(held), held, strict=True) if t is not options.get("out")):
            kind, text = "written", f"an input was written; {text}"
        gl.manual_seed(0)
        if gl.rand(2).tolist() != FIRST:
            kind, text = "state", f"the generator gives other numbers; {text}"
    except Exception as error:
        kind, text = "state", f"inputs cannot be read afterwards, or nothing can be drawn: {error}; {text}"
    return kind, text

"""What code asks of the system, of the standard library and of settings."""

import contextvars
import ctypes
import decimal
import logging
import os
import queue
import sys
import threading

import numpy as np

import gradlab as gl

from kinds.stale import read
from kinds.stale.asked import asking


def restored(get, put, value):
    """The number that a setting is, and a change of it that is undone."""
    before = get()

    def change(patch):
        patch.callback(lambda: put(before))
        put(value)

    return lambda x: x * float(get()), change


@read
def level_of_a_logger():
    logger = logging.getLogger("kinds.a")
    logger.setLevel(logging.INFO)
    return asking(lambda: logger.isEnabledFor(logging.DEBUG), lambda: logger.setLevel(logging.DEBUG))


@read
def level_of_a_logger_above():
    logger, above = logging.getLogger("kinds.above.b"), logging.getLogger("kinds.above")
    above.setLevel(20)
    return lambda x: x * logger.getEffectiveLevel(), lambda patch: above.setLevel(30)


@read
def all_loggers_disabled():
    logger = logging.getLogger("kinds.c")
    logger.setLevel(logging.INFO)

    def change(patch):
        patch.callback(lambda: logging.disable(logging.NOTSET))
        logging.disable(logging.CRITICAL)

    return lambda x: x * (2.0 if logger.isEnabledFor(logging.INFO) else 3.0), change


@read
def event():
    flag = threading.Event()
    return asking(flag.is_set, flag.set)


@read
def lock():
    held = threading.Lock()
    return asking(held.locked, held.acquire)


@read
def size_of_a_queue():
    waiting = queue.Queue()
    waiting.put(1)
    return lambda x: x * waiting.qsize(), lambda patch: waiting.put(2)


@read
def name_of_the_thread():
    thread = threading.current_thread()
    return lambda x: x * len(threading.current_thread().name), lambda patch: patch.setattr(thread, "name", "kinds")


@read
def variable_of_a_copied_context():
    variable = contextvars.ContextVar("kinds")
    variable.set(2.0)
    return lambda x: x * contextvars.copy_context()[variable], lambda patch: variable.set(3.0)


@read
def array_of_ctypes():
    values = (ctypes.c_double * 2)(2.0, 3.0)
    return lambda x: x * values[0], lambda patch: values.__setitem__(0, 4.0)


def deep(make, enter):
    """A number far inside of containers, and the change of it."""
    innermost = make(2.0)
    outermost = innermost
    for _ in range(30):
        outermost = make(outermost)

    def down(found, steps):
        return down(enter(found), steps - 1) if steps else enter(found)

    return lambda x: x * down(outermost, 30), innermost


@read
def deep_lists():
    function, innermost = deep(lambda inside: [inside], lambda found: found[0])
    return function, lambda patch: innermost.__setitem__(0, 3.0)


@read
def deep_tuples_of_dicts():
    function, innermost = deep(lambda inside: ({"in": inside},), lambda found: found[0]["in"])
    return function, lambda patch: innermost[0].__setitem__("in", 3.0)


@read
def deep_list_that_holds_itself():
    function, innermost = deep(lambda inside: [inside, None], lambda found: found[0])
    innermost[1] = innermost
    return function, lambda patch: innermost.__setitem__(0, 3.0)


@read
def decimal_precision():
    def change(patch):
        patch.setattr(decimal.getcontext(), "prec", 3)

    return lambda x: x * float(decimal.Decimal(2) / decimal.Decimal(3)), change


@read
def decimal_rounding():
    half, one = decimal.Decimal("2.5"), decimal.Decimal(1)
    return lambda x: x * float(half.quantize(one)), lambda patch: patch.setattr(decimal.getcontext(), "rounding", decimal.ROUND_UP)


@read
def decimal_context():
    third = decimal.Decimal(1) / 3

    def change(patch):
        before = decimal.getcontext()
        patch.callback(lambda: decimal.setcontext(before))
        decimal.setcontext(decimal.Context(prec=2))

    return lambda x: x * float(third + 1), change


@read
def recursion_limit():
    return restored(sys.getrecursionlimit, sys.setrecursionlimit, 3000)


@read
def directory():
    here = os.getcwd()

    def change(patch):
        patch.callback(lambda: os.chdir(here))
        os.chdir("/")

    return lambda x: x * len(os.getcwd()), change


@read
def errors_of_numpy():
    return restored(lambda: len(np.geterr()["over"]), lambda n: np.seterr(over={4: "warn", 5: "raise"}[n]), 5)


@read
def seed():
    return restored(gl.initial_seed, gl.manual_seed, 77)


@read
def seed_of_a_generator():
    generator = gl.Generator()
    generator.manual_seed(2)
    return lambda x: x * generator.initial_seed(), lambda patch: generator.manual_seed(3)


@read
def number_of_threads():
    return restored(gl.get_num_threads, gl.set_num_threads, gl.get_num_threads() + 1)

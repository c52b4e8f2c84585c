"""What is recorded at this moment: the mode of the current thread (and context), and the ways to change it.

Every operation reads the mode once. A mode is an immutable object in a ContextVar: the cheapest thread-local there is (15 ns against 42).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from sys import _getframe as getframe
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from gradlab.autograd import graph_cuts
from gradlab.call_site import inside

F = TypeVar("F", bound=Callable[..., Any])


class Mode:
    """`recording`: build the graph. `special`: something else is on too, so operations take the general path."""

    __slots__ = (
        "_inferring", "_loud", "_quiet", "_walks", "anomaly", "autocast", "floor", "inference", "observer", "recording", "saved_hooks",
        "scope", "special", "tracer", "vmap", "walking",
    )  # fmt: skip

    def __init__(
        self,
        recording: bool = True,
        inference: bool = False,
        scope: Any = None,
        tracer: Any = None,
        autocast: Any = None,
        saved_hooks: Any = None,
        anomaly: bool = False,
        walking: bool = False,
        observer: Any = None,
        vmap: Any = None,
        floor: int = 1 << 30,
    ) -> None:
        self.recording = recording
        self.inference = inference
        self.scope = scope  # the innermost nn.Module call (see nn.Module.__call__)
        self.tracer = tracer
        self.autocast = autocast
        self.saved_hooks = saved_hooks
        self.anomaly = anomaly
        self.walking = walking  # inside backward, not recording: views need not be tracked
        self.observer = observer  # called with (op, inputs, result, params) after each operation; see testing/parity.py
        self.vmap = vmap  # the innermost level of batching; see func/vmap_levels.py
        self.floor = floor  # while walking: how many levels of vmap lie outside of the walk, and go on recording
        self.special = (
            inference or anomaly or tracer is not None or autocast is not None or saved_hooks is not None or observer is not None
            or vmap is not None
        )  # fmt: skip
        self._walks: Mode | None = None
        self._quiet: Mode | None = None
        self._loud: Mode | None = None
        self._inferring: Mode | None = None

    def replace(self, **changes: Any) -> Mode:
        """A mode like this one but for `changes`."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "special" and name[0] != "_"}
        return Mode(**(values | changes))

    def within(self, scope: Any) -> Mode:
        """`replace(scope=scope)`, written out because every nn.Module call makes one."""
        new = object.__new__(Mode)
        new.recording, new.inference, new.special, new.scope = self.recording, self.inference, self.special, scope
        new.walking, new.observer, new.vmap, new.floor = self.walking, self.observer, self.vmap, self.floor
        new.tracer, new.autocast, new.saved_hooks, new.anomaly = self.tracer, self.autocast, self.saved_hooks, self.anomaly
        new._quiet = new._walks = new._loud = new._inferring = None
        return new

    def only_autocast(self) -> bool:
        """Whether autocast is all that is special."""
        return not (
            self.inference or self.anomaly or self.tracer is not None or self.saved_hooks is not None or self.observer is not None
            or self.vmap is not None
        )  # fmt: skip

    def walk(self) -> Mode:
        """The mode of a backward that records nothing, made once. Without autocast: a gradient is computed as its operation was."""
        if self._walks is None:
            self._walks = self.replace(recording=False, walking=True, autocast=None)
        return self._walks

    def quiet(self) -> Mode:
        """The mode of `no_grad`, made once: `replace(recording=False)`."""
        if self._quiet is None:
            self._quiet = self.replace(recording=False) if self.recording else self
        return self._quiet

    def loud(self) -> Mode:
        """The mode of `enable_grad`, made once."""
        if self._loud is None:
            self._loud = self if self.recording else self.replace(recording=True)
        return self._loud

    def inferring(self) -> Mode:
        """The mode of `inference_mode`, made once."""
        if self._inferring is None:
            self._inferring = self.replace(recording=False, inference=True)
        return self._inferring


_mode: ContextVar[Mode] = ContextVar("gradlab_mode", default=Mode())  # noqa: B039 - a Mode is never changed
current = _mode.get
recomputing: ContextVar[bool] = ContextVar("gradlab_recomputing", default=False)  # a checkpoint's part runs again: nothing counts it
enter = _mode.set
new = object.__new__
noted = graph_cuts.noted
leave = _mode.reset


@contextmanager
def users_code() -> Iterator[None]:
    """For hooks and other code of the user's in a backward: its views are views, and what it records in them is recorded."""
    token = enter(current().replace(walking=False))
    try:
        yield
    finally:
        leave(token)


def lowered(*tensors: Any) -> Any:
    """Under autocast, tensors in the dtype that it lowers to."""
    casting = current().autocast
    return tensors if casting is None else casting.all_as(tensors, "lower")


def widest(function: Callable[..., Any], *tensors: Any, **params: Any) -> Any:
    """A function of tensors, made of rows, outside of autocast and on the widest of their dtypes. None where autocast is off anyway."""
    mode = current()
    if mode.autocast is None:
        return None
    tensors = mode.autocast.all_as(tensors, "widest")
    enter(mode.replace(autocast=None))
    try:
        return function(*tensors, **params)
    finally:
        enter(mode)


def is_grad_enabled() -> bool:
    """Whether operations are being recorded in this thread."""
    return current().recording


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode` is on in this thread."""
    return current().inference


class ModeContext:
    """Base of the modes below: a context manager and a decorator, safe for recursion, exceptions, threads and generators."""

    def __init__(self) -> None:
        self._before: list[Mode] = []

    def _changed(self, mode: Mode) -> Mode:
        raise NotImplementedError

    def _clone(self) -> ModeContext:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._before = []
        return copy

    def __enter__(self) -> None:
        mode = current()
        self._before.append(mode)
        changed = self._changed(mode)
        if mode.recording and not changed.recording:
            graph_cuts.note_mode(type(self).__name__)
        enter(changed)

    def __exit__(self, *_: object) -> None:
        enter(self._before.pop())  # not by token: a generator may end in another context than it began in

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._clone():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _wrap_generator(self, function: Any) -> Any:
        """The body runs in this mode, the caller between two values in its own."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            generator = function(*args, **kwargs)
            step: Callable[[], Any] = lambda: next(generator)
            try:
                while True:
                    try:
                        with self._clone():
                            value = step()
                    except StopIteration as stop:
                        return stop.value
                    try:
                        sent = yield value
                        step = functools.partial(generator.send, sent)
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step = functools.partial(generator.throw, error)
            finally:
                with self._clone():
                    generator.close()

        return wrapped


class _Plain(ModeContext):
    """A mode without arguments: a decorator with or without parentheses."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        self = new(cls)
        self._before = []
        return self if function is None else self(function)

    if TYPE_CHECKING:
        def __init__(self, function: Callable[..., Any] | None = None) -> None: ...
    else:
        __init__ = object.__init__  # nothing is left to do, at a tenth of the time that a function takes

    def __enter__(self) -> None:
        """As that of all modes, written out: of small operations it is the larger part."""
        mode = current()
        self._before.append(mode)
        if mode.recording:
            frame = getframe(1)
            code = frame.f_code
            if inside[code.co_filename]:
                graph_cuts.note_mode("no_grad")
            else:
                noted(("no_grad", None, None, code, frame.f_lasti, get_ident()))
            enter(mode._quiet or mode.quiet())


class no_grad(_Plain):
    """Operations inside are not recorded. Use as `with gl.no_grad():` or as a decorator, with or without parentheses."""

    def _changed(self, mode: Mode) -> Mode:
        return mode._quiet or mode.quiet()


class enable_grad(_Plain):
    """Operations inside are recorded, also within `no_grad`."""

    __enter__ = ModeContext.__enter__

    def _changed(self, mode: Mode) -> Mode:
        return mode.loud()


class inference_mode(ModeContext):
    """As `no_grad`, and tensors made inside can never take part in recording (so nothing is watched for them)."""

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        return super().__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode: bool | Callable[..., Any] = True) -> None:
        super().__init__()
        self.mode = mode is not False

    def _changed(self, mode: Mode) -> Mode:
        return mode.inferring() if self.mode else mode.replace(recording=True, inference=False)


class Switch(ModeContext):
    """A mode that is on as soon as it is made, for good, or, used in a `with` statement or as a decorator, for a block."""

    def __init__(self) -> None:
        super().__init__()
        mode = current()
        self._pending: Mode | None = mode
        enter(self._changed(mode))

    def __enter__(self) -> None:
        if self._pending is not None:
            self._before.append(self._pending)
            self._pending = None
        else:
            super().__enter__()

    def __call__(self, function: F) -> F:
        if self._pending is not None:  # used as a decorator: undo the immediate switch
            enter(self._pending)
            self._pending = None
        return super().__call__(function)


class set_grad_enabled(Switch):
    """Switch recording on or off, at once (as a function) or for a block (as a context manager). TypeError for neither."""

    def __init__(self, mode: bool) -> None:
        try:
            self.mode = bool(mode)
        except (TypeError, ValueError, RuntimeError) as error:  # of an array or a tensor of several elements
            raise TypeError(f"set_grad_enabled: mode is True or False, not {type(mode).__name__} ({error})") from None
        super().__init__()

    def _changed(self, mode: Mode) -> Mode:
        return mode.loud() if self.mode else mode.quiet()


class set_detect_anomaly(Switch):
    """Check every result, forward and backward, and raise at the first operation that makes a NaN or infinity of finite inputs.

    At once (as a function) or for a block (as a context manager).
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.mode = bool(mode) and check_nan
        super().__init__()

    def _changed(self, mode: Mode) -> Mode:
        return mode.replace(anomaly=self.mode)


class detect_anomaly(ModeContext):
    """Within the block, check every result as `set_detect_anomaly(True)` does."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__()
        self.mode = check_nan

    def _changed(self, mode: Mode) -> Mode:
        return mode.replace(anomaly=self.mode)

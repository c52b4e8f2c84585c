"""The random state: `Generator`, the default generator, seeds, and `draw`, by which every random function takes its words.

A generator is a seed and a count of the words used; each call takes the words it needs (rounded up to 4). The same seed gives the same
numbers on every device, and there is one default generator for all devices. This module is what users see as `gradlab.random`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import dispatch
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import wrap
from gradlab.device import Device
from gradlab.named_errors import named_functions

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]

_WORD, _SIGNED = (1 << 64) - 1, 1 << 63


class Generator:
    """A stream of random numbers: a seed, and how much of it has been used.

    device: where `draw` places the state unless a function says otherwise; the numbers do not depend on it.
    """

    def __init__(self, device: Any = "cpu") -> None:
        _outside_of_traces("Generator()")
        try:
            self.device = Device(device)
        except (RuntimeError, TypeError) as error:
            raise type(error)(f"Generator: {error}") from None
        self._seed = 0
        self._offset = 0  # in words of 64 bits, always a multiple of 4

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of that seed (any integer from -2^63 to 2^64 - 1) from its beginning."""
        number = seed.__index__()
        if not -(1 << 63) <= number <= _WORD:
            raise RuntimeError(f"manual_seed: a seed has 64 bits, {number} does not fit")
        _outside_of_traces("manual_seed")
        self._seed, self._offset = number & _WORD, 0
        return self

    def seed(self) -> int:
        """Start from a seed that the operating system's randomness supplies; returns it."""
        self.manual_seed(int.from_bytes(os.urandom(7)) >> 3)
        return self._seed

    def initial_seed(self) -> int:
        """The seed last set."""
        return self._seed

    def get_state(self) -> Tensor:
        """The state as 16 bytes (uint8): seed and offset."""
        _outside_of_traces("get_state")
        return wrap(np.array([self._seed, self._offset], "<u8").view(np.uint8))

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue from a state that `get_state` gave."""
        _outside_of_traces("set_state")
        array = new_state.detach().cpu().numpy() if isinstance(new_state, Differentiable) else np.asarray(new_state)
        if array.dtype != np.uint8 or array.shape != (16,):
            raise RuntimeError(f"set_state: a state is 16 bytes (uint8) from get_state, not {array.dtype} of shape {array.shape}")
        seed, offset = (int(v) for v in np.ascontiguousarray(array).view("<u8"))
        if offset % 4:
            raise RuntimeError(f"set_state: not a state of get_state: offset {offset} is not a multiple of 4")
        self._seed, self._offset = seed, offset
        return self

    def clone_state(self) -> Generator:
        """Another generator at the same place of the same stream."""
        twin = Generator(self.device)
        twin._seed, twin._offset = self._seed, self._offset
        return twin

    clone = clone_state

    def state_array(self) -> Any:
        """Seed and offset as rows take them: int64[2], a new array each time."""
        if self._seed < _SIGNED and self._offset < _SIGNED:
            return np.array((self._seed, self._offset), np.int64)
        return np.array([self._seed, self._offset], np.uint64).view(np.int64)

    def advance(self, words: int) -> int:
        """Use up that many words, rounded up to a multiple of 4. Returns how many were used before."""
        before = self._offset
        self._offset = (before + -(-words // 4) * 4) & _WORD
        return before

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, offset={self._offset}, device={str(self.device)!r})"


def _outside_of_traces(name: str) -> None:
    """RuntimeError while `gl.compile` traces a function: a replay goes on with the stream as it then is."""
    refuse = getattr(current().tracer, "reseeded", None)
    if refuse is not None:
        raise refuse(name)


default_generator = Generator()
# While a CUDA graph is captured, what draws instead (gradlab/cuda/captured_random.py).
captured: ContextVar[Callable[[Generator, int, Device | None], tuple[Tensor, int] | None] | None] = ContextVar("captured", default=None)

# While this process computes part i of n of a batch: (i, n), see `part_of_batch`.
batch_part: ContextVar[tuple[int, int] | None] = ContextVar("batch_part", default=None)


@contextmanager
def part_of_batch(part: int, parts: int) -> Iterator[None]:
    """Within it each draw takes the words of a batch `parts` times as large, and uses those of its part: what is drawn for the rows of a
    batch, as dropout does, is what one process would draw for the same rows of the whole (where a part fills whole words of 64 bits)."""
    token = batch_part.set((part, parts))
    try:
        yield
    finally:
        batch_part.reset(token)


def undisturbed(generator: Generator | None) -> Generator | None:
    """The generator from which numbers on the CPU are drawn at once; None where a mode, a trace or a capture has a say, or the generator is
    none of ours."""
    if generator is None:
        generator = default_generator
    if current().special or batch_part.get() is not None or captured.get() is not None or type(generator) is not Generator:
        return None
    return generator


def draw(generator: Generator | None, words: int, device: Device | None = None, whole: bool = False) -> tuple[Tensor, int]:
    """The state tensor and the constant `offset` to give to a random row that uses `words` words.

    In a trace the state is an input of the program, and the constant offset counts the words that the program drew before.
    whole: for a piece of program whose own draws count what is for other parts of a batch already.
    """
    if not whole and (sharing := batch_part.get()) is not None:
        part, parts = sharing
        state, offset = draw(generator, words * parts, device, whole=True)
        return state, offset + part * words
    if generator is None:
        generator = default_generator
    elif not isinstance(generator, Generator):
        raise TypeError(f"generator: a gradlab.Generator or None, not {type(generator).__name__}")
    mode = current()
    if mode.vmap is not None:
        return mode.vmap.draw(generator, words, device)
    tracer = mode.tracer
    if tracer is not None:
        if device is not None and device.type != "cpu":
            tracer.meet(device)
        return tracer.random_state(generator), tracer.advance_random(generator, -(-words // 4) * 4)
    if (capturing := captured.get()) is not None and (found := capturing(generator, words, device)) is not None:
        return found
    if device is None or device.type == "cpu":
        state = generator.state_array()
        generator.advance(words)
        return wrap(state), 0
    if device.type == "meta":  # nothing is drawn
        return wrap(dispatch.backend_for(device).random_state(0, device)), 0  # type: ignore[attr-defined]
    place = generator.advance(words)
    drawing: dispatch.Drawing = dispatch.backend_for(device)  # type: ignore[assignment]
    state = drawing.random_state(generator._seed, device)
    return wrap(state), place if place < 1 << 63 else place - (1 << 64)


drawn = functools.partial(draw, whole=True)


def set_apart(generator: Generator | None, words: int) -> Generator:
    """A generator at the place of `generator` (default: the default one), which goes past that many words: they are for numbers to be made
    later, the same that would be drawn now."""
    source = default_generator if generator is None else generator
    if not isinstance(source, Generator):
        raise TypeError(f"generator: a gradlab.Generator or None, not {type(source).__name__}")
    own = source.clone_state()
    source.advance(words)
    return own


def apart(seed: int, place: int, function: Callable[[Any], Any], given: Any) -> Any:
    """`function(given)`, in which the default generator draws from that place of the stream of `seed`; afterwards it is where it was."""
    source = default_generator
    kept = source._seed, source._offset
    source._seed, source._offset = seed & _WORD, place & _WORD & ~3
    try:
        return function(given)
    finally:
        source._seed, source._offset = kept


def manual_seed(seed: int) -> Generator:
    """Seed the default generator (of all devices).

    >>> _ = gl.manual_seed(1)
    >>> a = gl.rand(2)
    >>> _ = gl.manual_seed(1)
    >>> bool((a == gl.rand(2)).all())
    True
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system's randomness; returns the seed.

    >>> isinstance(gl.seed(), int)
    True
    """
    return default_generator.seed()


def initial_seed() -> int:
    """The default generator's seed.

    >>> _ = gl.manual_seed(5)
    >>> gl.initial_seed()
    5
    """
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state, 16 bytes.

    >>> state = gl.get_rng_state()
    >>> a = gl.rand(1)
    >>> gl.set_rng_state(state)
    >>> bool(a == gl.rand(1))
    True
    """
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the default generator's state.

    >>> gl.set_rng_state(gl.get_rng_state())
    """
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, *_: Any, device_type: Any = "cuda") -> Iterator[None]:
    """Random numbers drawn inside leave no trace: afterwards the default generator is where it was. Neither `devices`
    nor `device_type` is needed: there is one stream of numbers.

    >>> with gl.random.fork_rng():
    ...     x = gl.rand(2)
    >>> bool((gl.rand(2) == x).all())
    True
    """
    kept = default_generator._seed, default_generator._offset
    try:
        yield
    finally:
        if enabled:
            default_generator._seed, default_generator._offset = kept


named_functions(__name__)

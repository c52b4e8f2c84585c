"""Random numbers in captured graphs: new ones in each replay.

A graph holds the address of a generator's state and, for each draw, how many words were drawn before it. Before each replay the state is
written there, and the generator moves on by what the graph draws. Replays in different streams share the state: it is written only when
the replay before has read it.
"""

from __future__ import annotations

from contextvars import Token
from typing import Any

import numpy as np

from gradlab.autograd.mode import no_grad
from gradlab.autograd.record import wrap
from gradlab.device import Device
from gradlab.tensor import generator
from gradlab.tensor.convert import moved
from gradlab.tensor.generator import Generator


class CapturedDraws:
    """The generators that a graph draws from: the default one, and those that were registered."""

    def __init__(self, device: Device, generators: list[Generator]) -> None:
        self._states = {g: moved(wrap(np.zeros(2, np.int64)), device) for g in [generator.default_generator, *generators]}
        self._words = dict.fromkeys(self._states, 0)
        self._token: Token[Any] | None = None
        self._replayed: Any = None  # an event: the last replay, which read the states, is over

    def begin(self) -> None:
        """From now on draws are the graph's."""
        self._token = generator.captured.set(self._draw)

    def end(self) -> None:
        """The capture is over."""
        if self._token is not None:
            generator.captured.reset(self._token)
            self._token = None

    def _draw(self, source: Generator, words: int, device: Device | None) -> tuple[Any, int] | None:
        if device is None or device.type == "cpu":
            return None
        if source not in self._states:
            raise RuntimeError(
                "inside a CUDA graph's capture: random numbers are drawn from a generator that the graph does not know; call "
                "register_generator_state(generator) before the capture"
            )
        before = self._words[source]
        self._words[source] += -(-words // 4) * 4
        return self._states[source], before

    def renew(self, driver: Any, stream: Any) -> None:
        """Before a replay in the current stream: wait for the replay before, write the states, move the generators on."""
        if self._replayed is not None:
            driver.wait_event(stream, self._replayed)
        for source, words in self._words.items():
            if words:
                state = self._states[source]
                with no_grad():
                    state.copy_(moved(wrap(source.state_array()), state.device))
                source.advance(words)

    def replayed(self, driver: Any, stream: Any) -> None:
        """After a replay has been submitted to the stream."""
        if any(self._words.values()):
            if self._replayed is None:
                self._replayed = driver.new_event(False)
            driver.record_event(self._replayed, stream)

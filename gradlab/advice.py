"""Warnings about programs that run but do not do what they seem to. All are `GradlabWarning`s; Python's filters silence them:

    warnings.filterwarnings("ignore", category=gl.GradlabWarning)
"""

from __future__ import annotations

import warnings

from gradlab import call_site


class GradlabWarning(UserWarning):
    """The base of gradlab's own warnings about training."""


class BroadcastWarning(GradlabWarning):
    """A loss whose target has another shape than its input, so that the two are broadcast."""


class NoGradientWarning(GradlabWarning):
    """Parameters of an optimizer that no backward gives a gradient."""


class StaleGradientWarning(GradlabWarning):
    """Gradients that are never zeroed, so that those of all steps add up."""


class HeldGraphWarning(GradlabWarning):
    """Graphs of earlier steps that somebody holds, so that memory grows."""


class NonFiniteWarning(GradlabWarning):
    """A gradient that is not finite."""


_shown: dict[object, object] = {}  # Python's own memory of what was shown
always = False  # whether what was shown is shown again: `gl.set_warn_always`


def warn(category: type[Warning], message: str) -> None:
    """Warn at the user's line; by Python's default filter once for each line and text."""
    code, lasti = call_site.caller()
    place = call_site.line_of(code, lasti) if code is not None else None
    file, line = ("gradlab", 0) if place is None else (place.file, place.line)
    warnings.warn_explicit(message, category, file, line, registry={} if always else _shown)  # type: ignore[arg-type]

"""Is an operation right? `opcheck` runs an operation of one's own through all that gradlab's are held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradlab.backends.cuda.emulator import CompilerMissing
from gradlab.testing import op_checks
from gradlab.testing.cases import Case, Subject
from gradlab.testing.op_checks import NotApplicable, Options

CHECKS: dict[str, Callable[[Subject, Sequence[Case], Options], str]] = {
    "value": op_checks.value,
    "dtypes": op_checks.dtypes,
    "layouts": op_checks.layouts,
    "empty": op_checks.empty,
    "gradcheck": op_checks.first_order,
    "gradgradcheck": op_checks.second_order,
    "trace": op_checks.traced,
    "compile": op_checks.compiled,
    "vmap": op_checks.mapped,
    "parity": op_checks.parity,
    "orders": op_checks.orders,
    "races": op_checks.races,
    "sanitizers": op_checks.sanitizers,
}


class OpCheckError(AssertionError):
    """An operation failed a check. `report` is the whole report."""

    def __init__(self, report: OpReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass
class Outcome:
    """What a check said: "ok", "FAILED" or "skipped", and details."""

    check: str
    status: str
    detail: str


@dataclass
class OpReport:
    """What `opcheck` found. True if nothing failed; printing it lists the checks, and for those that failed the first difference."""

    name: str
    samples: int
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(o.status != "FAILED" for o in self.outcomes)

    def __bool__(self) -> bool:
        return self.ok

    def __getitem__(self, check: str) -> Outcome:
        return next(o for o in self.outcomes if o.check == check)

    def __str__(self) -> str:
        width = max((len(o.check) for o in self.outcomes), default=0)
        lines = [f"opcheck of {self.name}: {self.samples} sample(s)"]
        for o in self.outcomes:
            first, *rest = o.detail.splitlines() or [""]
            lines.append(f"  {o.check:{width}}  {o.status:7}  {first}".rstrip())
            lines += [f"  {'':{width}}           {line}".rstrip() for line in rest]
        lines.append("  " + ("all is well" if self.ok else f"{sum(o.status == 'FAILED' for o in self.outcomes)} check(s) FAILED"))
        return "\n".join(lines)


def opcheck(
    op: Any,
    samples: Any,
    *,
    checks: Sequence[str] | None = None,
    dtypes: Sequence[str] = ("float64", "float32", "float16", "bfloat16"),
    sanitize: Sequence[str] = ("address,undefined", "thread"),
    tolerance: float = 1.0,
    raise_exception: bool = True,
) -> OpReport:
    """Run an operation of `gl.library.custom_op` (or a row of `gradlab.ops`) through these checks, on samples of its arguments:

    value          the rule says what the reference gives; inputs stay as they are; twice the same bits
    dtypes         each of `dtypes` agrees with float64 on the same numbers
    layouts        strided, transposed and expanded (stride 0) inputs
    empty          inputs with a dimension of size 0, where the rule takes them
    gradcheck      gradients against finite differences, in float64; `gradgradcheck` those of the gradients
    trace, compile a traced program and a compiled function, also backward, on fresh inputs
    vmap           against the samples one by one, and in both orders with gradients
    parity         a GPU against the CPU, forward and backward; the emulated GPU where there is no other
    orders         the kernels' threads run in other orders on the emulated GPU: the same bits
    races          no byte that two threads touch, one of them writing, with neither a barrier nor an atomic function
    sanitizers     the kernels under `sanitize`: the thread sanitizer takes the smallest sample only

    samples: a list of samples; each a tuple of inputs (tensors, arrays, numbers, None), or a pair of that tuple and a dict of parameters.
    Floating point inputs are taken in float64; choose values away from points that are not smooth, and small: ten numbers find what a
    thousand would.
    checks: only those of these names. tolerance: multiplies the tolerances of values (see `gl.testing.parity`).

    What needs a C++ compiler is skipped without one. Returns the report, or raises OpCheckError with it unless raise_exception=False.

    >>> import numpy as np, gradlab as gl
    >>> twice = gl.library.custom_op("docs::twice", lambda x: 2 * x, cuda="T(2) * x", grad=lambda g: g * 3)
    >>> report = gl.testing.opcheck(twice, [(gl.ones(2),)], checks=["value", "gradcheck"], raise_exception=False)
    >>> bool(report), report["value"].status, report["gradcheck"].status
    (False, 'ok', 'FAILED')
    """
    subject = Subject.of(op)
    chosen = list(CHECKS) if checks is None else list(checks)
    unknown = [c for c in chosen if c not in CHECKS]
    if unknown:
        raise ValueError(f"opcheck: there is no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    if not isinstance(samples, list) or not samples:
        raise TypeError("opcheck: samples is a list of samples, with at least one")
    cases = [subject.case(sample) for sample in samples]
    options = Options(tuple(dtypes), tuple(sanitize), tolerance)
    report = OpReport(subject.name, len(cases))
    for check in chosen:
        try:
            outcome = Outcome(check, "ok", CHECKS[check](subject, cases, options))
        except (NotApplicable, CompilerMissing) as reason:
            outcome = Outcome(check, "skipped", str(reason))
        except AssertionError as error:
            outcome = Outcome(check, "FAILED", str(error))
        except Exception as error:
            outcome = Outcome(check, "FAILED", f"{type(error).__name__}: {error}")
        report.outcomes.append(outcome)
    if raise_exception and not report:
        raise OpCheckError(report)
    return report

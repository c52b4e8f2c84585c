"""All tests of one row: `python -m tests.row NAME` runs every sample of it through every check that is made of samples, and the public
functions and methods of that name through the tests of kinds. Further arguments are pytest's.

Values, dtypes, strides, gradients (test_ops), traces, vmap, ONNX, the expression as C++, compiled programs, the emulated GPU (all dtypes).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
FILES = (
    "test_ops.py", "test_trace.py", "test_vmap_rows.py", "test_onnx_export_rows.py", "test_expressions.py", "test_compile_rows.py",
    "test_jit_rows.py", "test_cuda_rows.py", *(f"kinds/test_{kind}.py" for kind in (
        "calls", "complex", "half_units", "meta", "result_layouts", "result_properties", "shared_memory", "silence", "trace_layouts",
    )),
)  # fmt: skip
ALWAYS = ("test_every_row_has_samples", "test_every_public_name_has_a_call_or_an_excuse", "test_most_rows_have_a_rule")


class Only:
    """Leaves the tests that have the row, or a public function of its name, as a parameter."""

    def __init__(self, name: str) -> None:
        self.name = name

    def concerned(self, value: Any) -> bool:
        """Whether a parameter is the row: its name, the row itself, or a call of the catalogue (`gl.add`, `Tensor.add_`)."""
        named = value if isinstance(value, str) else getattr(value, "name", None)
        return isinstance(named, str) and named.rpartition(".")[2].removesuffix("_") == self.name

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out all others, and says so where nothing is left."""
        kept, rest = [], []
        for item in items:
            values = getattr(item, "callspec", None)
            here = item.name in ALWAYS or (values is not None and any(map(self.concerned, values.params.values())))
            (kept if here else rest).append(item)
        if len(kept) <= len(ALWAYS):
            raise pytest.UsageError(f"no test has a row or a public function of the name {self.name!r}")
        config.hook.pytest_deselected(items=rest)
        items[:] = kept


def main(arguments: list[str]) -> int:
    """Runs the tests of the row that the first argument names."""
    if not arguments or arguments[0].startswith("-"):
        print("usage: python -m tests.row NAME [options of pytest]")
        return 2
    name, *options = arguments
    return int(pytest.main(["-q", "--full", *options, *[str(HERE / f) for f in FILES]], plugins=[Only(name)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Measures how exact each operation is beside PyTorch, and writes docs/numerics.md.

    python -m tests.numerics --only '^exp$' --dtype float32       looks at a few, and writes nothing
    python -m tests.numerics --measure                             all of them, half an hour: tests/numerics/figures.json and points.npz
    python -m tests.numerics --write                               the page, from these

Measuring needs mpmath, SciPy, PyTorch and a C++ compiler; exact values are kept in the system's temporary folder. With --only or --dtype,
--measure replaces what it measures and leaves the rest.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as pytest's `pythonpath` has it
os.environ.setdefault("GRADLAB_CUDA", "emulated")

from numerics import figures, kept, page
from numerics.complexes import COMPLEX
from numerics.inputs import DTYPES
from numerics.larger import BACKWARD, LARGER
from numerics.rows import SAMPLED
from numerics.scalars import SCALARS


def main() -> None:
    """Looks at some, or measures, or writes."""
    parser = argparse.ArgumentParser(prog="python -m tests.numerics", description="How exact each operation is, beside PyTorch.")
    parser.add_argument("--only", default="", help="a regular expression for names of entries")
    parser.add_argument("--dtype", default=",".join(DTYPES))
    parser.add_argument("--forms", default=",".join(figures.FORMS))
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.write:
        page.PAGE.write_text(page.text(figures.read()), encoding="utf-8")
        if not given.measure:
            return
    from numerics import measuring

    everything = [*SCALARS, *LARGER, *BACKWARD, *COMPLEX, *(f"row {row}" for row in SAMPLED)]
    names = [name for name in everything if re.search(given.only, name)]
    found = measuring.all_of(names, given.dtype.split(","), given.forms.split(","))
    if given.measure:
        figures.merge(found, names)
        figures.write_rows({name: measuring.rows_of(name) for name in everything})
        kept.write(figures.read())
        page.PAGE.write_text(page.text(figures.read()), encoding="utf-8")
        return
    for name, dtypes in found.items():
        for dtype, forms in dtypes.items():
            for form, parts in forms.items():
                print(name, dtype, form, *(f"{part}: {value}" for part, value in parts.items()))


if __name__ == "__main__":
    main()

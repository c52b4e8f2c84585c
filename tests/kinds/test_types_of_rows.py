"""Each row takes and gives the types that are written down (`types_of_rows.txt`), and asks for gradients as it does there."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from kinds.types_of_rows import FILE, NAMES, lines

pytestmark = pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="older NumPy wraps numbers that a type does not hold")
WRITTEN = defaultdict(list)
for text in FILE.read_text(encoding="utf-8").splitlines():
    if not text.startswith("#"):
        WRITTEN[text.partition(":")[0]].append(text)


def test_all_rows_are_written_down():
    assert [*WRITTEN] == NAMES, "python -m tests.kinds.types_of_rows"


@pytest.mark.parametrize("name", NAMES)
def test_types(name):
    assert lines(name) == WRITTEN[name]

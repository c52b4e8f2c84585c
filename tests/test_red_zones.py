"""Canaries around memory die when something is written beside it, and only then."""

import numpy as np
import pytest
from red_zones import ZONE, Zones


@pytest.mark.parametrize("at", [-ZONE, -1, 12, 12 + ZONE - 1])
def test_a_write_beside_an_array_is_found(at):
    zones = Zones()
    made = zones.around(np.arange(3, dtype=np.float32))
    zones.check()
    whole, _ = zones.made[0]
    whole[ZONE + at] = 1
    with pytest.raises(AssertionError, match="beside an array of 12 bytes"):
        zones.check()
    np.testing.assert_array_equal(made, [0, 1, 2])


def test_rubbish_is_nan_and_memory_is_aligned():
    made = Zones().empty((2, 3), np.float64)
    assert np.isnan(made).all() and made.ctypes.data % 64 == 0

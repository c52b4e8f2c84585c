"""Series of untidy files and of data frames: put in the order of their dates, one row for each step, and cut into windows for a model.

`calendar` finds the regular step among dates, `reading` puts a table's rows in order and says what is missing, and `dataset` fills, scales
and cuts them.
"""

from __future__ import annotations

from gradlab.data.series.calendar import Calendar
from gradlab.data.series.dataset import SeriesCoding, TimeSeriesDataset, Windows
from gradlab.data.series.reading import Layout, Observations, SeriesError, observed

__all__ = ["Calendar", "Layout", "Observations", "SeriesCoding", "SeriesError", "TimeSeriesDataset", "Windows", "observed"]

"""Series: put in the order of their dates, gaps said and filled or not crossed, cut into windows, the end held out."""

from __future__ import annotations

import datetime
import math

import numpy as np
import pytest

import gradlab as gl
from gradlab.data import SeriesError, TableError, TimeSeriesDataset
from gradlab.data.series import Calendar, observed
from gradlab.data.series.dataset import filled
from gradlab.data.series.seasons import season_of

from repository import ROOT

SUNSPOTS = ROOT / "tests/data/sunspots.csv"


def days(start, count, step=1):
    first = datetime.date.fromisoformat(start)
    return [(first + datetime.timedelta(days=step * i)).isoformat() for i in range(count)]


def waves(count=120, season=12):
    return [math.sin(2 * math.pi * i / season) + 0.01 * (i * 7919 % 13) for i in range(count)]


def months(count, day=1):
    return [f"{1950 + i // 12}-{1 + i % 12:02d}-{day:02d}" for i in range(count)]


# ---------------------------------------------------------------- dates


CALENDARS = {  # dates -> what the step is, and which dates come next
    "years as numbers": (list(range(1900, 1950)), "steps of 1", ["1950", "1951"]),
    "decimal years": ([round(1959 + i / 12, 3) for i in range(240)], "steps of 0.08333", ["1979.000", "1979.084"]),
    "days": (days("2020-02-20", 40), "steps of a day", ["2020-03-31", "2020-04-01"]),
    "weeks": (days("2020-01-05", 40, 7), "steps of 7 days", ["2020-10-11", "2020-10-18"]),
    "weekdays": (
        [d for d in days("2020-01-06", 60) if datetime.date.fromisoformat(d).weekday() < 5],
        "Monday to Friday", ["2020-03-06", "2020-03-09"],
    ),
    "months": (months(30), "steps of a month", ["1952-07-01", "1952-08-01"]),
    "middles of months": (months(30, 15), "steps of a month", ["1952-07-15", "1952-08-15"]),
    "ends of months": (
        ["2019-10-31", "2019-11-30", "2019-12-31", "2020-01-31", "2020-02-29", "2020-03-31"],
        "steps of a month", ["2020-04-30", "2020-05-31"],
    ),
    "months of four letters": (["Jan-20", "Feb-20", "Mar-20", "Apr-20", "May-20"], "steps of a month", ["2020-06-01", "2020-07-01"]),
    "quarters": ([f"{1990 + i // 4}-{1 + 3 * (i % 4):02d}-01" for i in range(20)], "steps of 3 months", ["1995-01-01", "1995-04-01"]),
    "years": ([f"{y}-12-31" for y in range(1960, 2000)], "steps of a year", ["2000-12-31", "2001-12-31"]),
    "hours": ([f"2021-03-0{1 + i // 24} {i % 24:02d}:00" for i in range(60)],
              "steps of an hour", ["2021-03-03 12:00:00", "2021-03-03 13:00:00"]),
    "ten minutes": ([f"2021-03-01T{i // 6:02d}:{i % 6}0:00" for i in range(60)],
                    "steps of 10 minutes", ["2021-03-01 10:00:00", "2021-03-01 10:10:00"]),
    "numbers of eight digits": ([19580329.0, 19580405.0, 19580412.0, 19580419.0], "steps of 7 days", ["1958-04-26", "1958-05-03"]),
    "months as numbers": ([100 * (1990 + i // 12) + 1 + i % 12 for i in range(24)], "steps of a month", ["1992-01-01", "1992-02-01"]),
    "quarters in words": ([f"{1990 + i // 4}Q{1 + i % 4}" for i in range(20)], "steps of 3 months", ["1995-01-01", "1995-04-01"]),
    "quarters turned round": ([f"Q{1 + i % 4} {1990 + i // 4}" for i in range(20)], "steps of 3 months", ["1995-01-01", "1995-04-01"]),
    "weeks in words": ([f"2001-W{i:02d}" for i in range(1, 40)], "steps of 7 days", ["2001-10-01", "2001-10-08"]),
    "NumPy's": (np.arange("2001-01", "2004-01", dtype="datetime64[M]"), "steps of a month", ["2004-01-01", "2004-02-01"]),
}  # fmt: skip


def series_of(dates, **settings):
    """A table with such dates, which is too short for windows or not."""
    return observed({"date": dates, "y": waves(len(dates))}, "y", **settings)


@pytest.mark.parametrize("name", CALENDARS)
def test_the_step_and_the_next_dates_are_found(name):
    dates, step, later = CALENDARS[name]
    found = series_of(dates)
    assert step in str(found.calendar) and found.later(2) == later
    assert len(found.times) == len(dates) and not found.notes and found.calendar.regular
    assert Calendar.from_state(found.calendar.state()) == found.calendar


@pytest.mark.parametrize("name", [n for n, (dates, *_) in CALENDARS.items() if len(dates) >= 19])
def test_steps_that_are_not_there_are_found_again(name):
    dates, _, later = CALENDARS[name]
    found = series_of([d for i, d in enumerate(dates) if i not in (5, 11, 12)])
    assert len(found.times) == len(dates) and np.flatnonzero(np.isnan(found.values[:, 0])).tolist() == [5, 11, 12]
    assert found.later(2) == later and "3 of" in found.notes[0] and "2 gaps" in found.notes[0]
    assert found.times == pytest.approx(series_of(dates).times, abs=0.002)


def test_parts_of_a_date_in_columns_of_their_own():
    table = {"Year": [2000 + i // 12 for i in range(36)], "Month": [1 + i % 12 for i in range(36)], "y": waves(36)}
    found = TimeSeriesDataset(table, "y", horizon=3, window=6)
    assert found.series.layout.date == ["Year", "Month"] and found.series.later(1) == ["2003-01-01"]
    quarters = {"year": [2000 + i // 4 for i in range(36)], "quarter": [1.0 + i % 4 for i in range(36)], "y": waves(36)}
    assert TimeSeriesDataset(quarters, horizon=3, window=6).series.later(1) == ["2009-01-01"]


def test_rows_are_put_in_order_and_what_was_done_is_said():
    dates, values = days("2020-01-01", 60), waves(60)
    straight = TimeSeriesDataset({"when": dates, "y": values}, "y", horizon=3, window=6)
    turned = TimeSeriesDataset({"when": dates[::-1], "y": values[::-1]}, "y", horizon=3, window=6)
    assert np.array_equal(straight.series.values, turned.series.values) and "newest row comes first" in turned.notes[0]
    order = np.random.default_rng(0).permutation(60)
    mixed = TimeSeriesDataset({"when": [dates[i] for i in order], "y": [values[i] for i in order]}, "y", horizon=3, window=6)
    assert np.array_equal(straight.series.values, mixed.series.values) and "sorted" in mixed.notes[0]


def test_dates_that_are_there_twice():
    dates, values = days("2020-01-01", 60), waves(60)
    found = TimeSeriesDataset({"when": [*dates, dates[7]], "y": [*values, values[7] + 1]}, "y", horizon=3, window=6)
    assert found.series.values[7, 0] == pytest.approx(values[7] + 0.5) and any("1 rows have the date" in note for note in found.notes)
    with pytest.raises(SeriesError, match="are there several series in it"):
        TimeSeriesDataset({"when": dates * 2, "y": values * 2}, "y", horizon=3)


def test_dates_that_are_in_no_step_or_missing_or_wrong():
    random = np.random.default_rng(0)
    times = np.cumsum(random.exponential(1.0, 80))
    found = TimeSeriesDataset({"time": times, "y": waves(80)}, "y", horizon=3, window=6)
    assert not found.coding.calendar.regular and "not in regular steps" in found.notes[0] and len(found.series.times) == 80
    dates = days("2020-01-01", 60)
    lost = TimeSeriesDataset({"when": [*dates[:9], "", *dates[10:]], "y": waves(60)}, "y", date="when", horizon=3, window=6)
    assert any("no date" in note for note in lost.notes) and len(lost.series.times) == 60
    with pytest.raises(SeriesError, match=r"row 59 is .* steps after the row before it; mend the date"):
        TimeSeriesDataset({"when": [*dates[:59], "2920-02-29"], "y": waves(60)}, "y", horizon=3)


def test_without_dates_rows_are_steps():
    found = TimeSeriesDataset({"y": waves(60)}, horizon=3, window=6)
    assert found.series.layout.date == [] and found.series.later(2) == ["61", "62"] and found.series.layout.date_name == "step"


def test_what_is_not_looked_at_is_said():
    dates = [f"{i + 1}.{i + 1}.2020 or so" for i in range(60)]
    found = TimeSeriesDataset({"when": dates, "y": waves(60), "z": waves(60)}, "y", horizon=3, window=6)
    assert found.notes == ['not looked at: "when", "z"; none is a date that was understood (--date), --covariates takes further columns']
    hours = [f"2021-03-0{1 + i // 24}T{i % 24:02d}:00:00+02:00" for i in range(60)]
    assert "those of UTC" in TimeSeriesDataset({"t": hours, "y": waves(60)}, "y", horizon=3, window=6).notes[0]


@pytest.mark.parametrize("unit", [1e-200, 1e200, 1e306])
def test_numbers_of_any_size(unit):
    found = TimeSeriesDataset({"y": np.array(waves(80)) * unit}, "y", horizon=3)
    small = TimeSeriesDataset({"y": waves(80)}, "y", horizon=3)
    assert found.coding.season == small.coding.season == 12 and found.coding.errors[0] == pytest.approx(small.coding.errors[0] * unit)
    assert np.allclose(found.training.arrays()[0], small.training.arrays()[0], atol=1e-6)
    far = TimeSeriesDataset({"y": np.array([*waves(200), 1e2, *waves(99)]) * unit}, "y", horizon=3)
    assert "1 steps are more than 10 deviations off the mean (the first is" in far.notes[0] and "at 201)" in far.notes[0]
    level = TimeSeriesDataset({"y": 1e9 + 1e-3 * np.array(waves(80))}, "y", horizon=3)
    assert level.coding.season == 12


# ---------------------------------------------------------------- gaps


def test_filling_never_looks_ahead():
    nan = math.nan
    column = np.array([nan, 1.0, nan, nan, 4.0, nan, nan, nan, nan, 9.0, nan])[:, None]
    assert filled(column, None)[:, 0].tolist()[1:] == [1, 1, 1, 4, 4, 4, 4, 4, 9, 9]
    short = filled(column, 2)[:, 0]
    assert short[1:5].tolist() == [1, 1, 1, 4] and np.isnan(short[5:9]).all() and short[9:].tolist() == [9, 9]
    assert np.array_equal(filled(column, 0), column, equal_nan=True) and np.isnan(filled(column, None)[0, 0])


@pytest.mark.parametrize(("gaps", "least"), [("fill", 0), ("split", 30), (None, 20)])
def test_gaps_are_filled_or_not_crossed(gaps, least):
    values = waves(200)
    for i in [20, *range(80, 100)]:
        values[i] = math.nan
    found = TimeSeriesDataset({"y": values}, horizon=4, window=8, gaps=gaps)
    whole = 200 - 40 - 8 - 4 + 1
    assert len(found.training) <= whole - least and (gaps != "fill" or len(found.training) > whole - 20)
    windows, futures = found.training.arrays()
    assert not np.isnan(windows).any() and np.isnan(futures).any() and (~np.isnan(futures)).any((1, 2)).all()
    assert any("21 of 200 steps are missing" in note for note in found.notes)


def test_unknown_ends_are_left_out():
    nan = math.nan
    found = TimeSeriesDataset({"y": [nan, nan, *waves(60), nan]}, "y", horizon=3, window=6)
    assert len(found.series.times) == 60 and "2 at its start and 1 at its end" in found.notes[0]


# ---------------------------------------------------------------- windows


def test_windows_of_the_training_part_never_see_the_rest():
    found = TimeSeriesDataset({"y": [float(i * i % 31) for i in range(100)]}, horizon=5, window=7, fraction=0.3)
    assert (found.first, found.held_out, len(found.training), len(found.validation)) == (70, 30, 59, 26)
    scaled = (found.series.values[:, 0] - found.coding.means[0]) / found.coding.deviations[0]
    assert found.coding.means[0] == pytest.approx(found.series.values[:70].mean()) and found.coding.deviations[0] == pytest.approx(
        found.series.values[:70].std()
    )
    for part, begin in ((found.training, 0), (found.validation, 63)):
        for i in (0, len(part) - 1):
            window, future = part[i]
            assert window.numpy()[:, 0] == pytest.approx(scaled[begin + i : begin + i + 7], abs=1e-6)
            assert future.numpy()[:, 0] == pytest.approx(scaled[begin + i + 7 : begin + i + 12], abs=1e-6)
    assert found.training.starts.max() + 12 == 70
    batch = found.training.take_batch([3, 0])
    assert batch[0].shape == (2, 7, 1) and gl.equal(batch[0][0], found.training[3][0])
    assert len(found) == 85 and gl.equal(found[84][1], found.validation[25][1]) and gl.equal(found[-1][1], found[84][1])
    with pytest.raises(IndexError):
        found[85]


def test_several_values_and_covariates():
    table = {"a": waves(80), "b": [v * 1000 for v in waves(80)], "hot": [float(i % 5) for i in range(80)], "t": list(range(80))}
    for value in ("a,b", ["a", "b"]):
        found = TimeSeriesDataset(table, value, covariates=["hot"], horizon=4, window=9)
        assert [part.shape for part in found.training[0]] == [(9, 3), (4, 2)] and found.series.layout.date == ["t"]
    assert found.coding.in_unit(found.training[0][1].numpy())[:, 1] == pytest.approx(np.array(waves(80))[9:13] * 1000, rel=1e-4)
    comma = TimeSeriesDataset({"a,b": waves(80)}, "a,b", horizon=4)
    assert comma.series.layout.values == ["a,b"]


def test_seasons_are_found():
    random = np.random.default_rng(1)
    steps = np.arange(300)
    for season in (4, 7, 12, 24, 52):
        wave = np.where(steps % season < season / 3, 1.0, 0.0) + 0.1 * random.normal(size=300)
        assert season_of(wave) == season and season_of(wave + steps) == season
        wave[random.permutation(300)[:60]] = np.nan
        assert season_of(wave) == season
    assert season_of(random.normal(size=300)) is None and season_of(steps * 1.0) is None
    assert season_of(random.normal(size=300).cumsum()) in {None, *range(20, 100)}  # a walk may seem to turn round
    assert TimeSeriesDataset(SUNSPOTS, "SUNACTIVITY").coding.season == 11


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        ({"y": [5.0] * 50}, {}, '"y" is 5 in every step of the part to learn from: there is nothing to forecast'),
        ({"y": [5.0] * 40 + [1.0, 2.0] * 5}, {}, "nothing to forecast"),
        ({"y": waves(50), "hot": [1] * 50}, {"value": "y", "covariates": ["hot"]}, '"hot" is 1 in every step'),
        ({"y": waves(100)}, {"horizon": 24},
         r"24 steps are to be forecast, and 20 of 100 are held out; take a --horizon of 20 at most, or hold out more \(--validation 0.24"),
        ({"y": waves(20)}, {"horizon": 24}, "take a --horizon of 4 at most, or give a longer series"),
        ({"y": waves(100)}, {"horizon": 10, "window": 100},
         "80 steps to learn from are too few for a window of 100 and 10 steps to forecast; take a --window of 67 at most"),
        ({"y": waves(12)}, {"horizon": 2, "fraction": 0.5, "window": 3}, "too few for a window of 3 and 2 steps"),
        ({"y": [1.0]}, {}, "a series has two steps at least"),
        ({"y": waves(50)}, {"value": "z"}, 'there is no column "z"; the columns are y'),
        ({"y": waves(50), "z": waves(50)}, {}, r"name the column to forecast \(--value\): 2 columns hold numbers \(y, z\)"),
        ({"y": [*waves(49), "much"]}, {"value": "y"}, 'row 49: column "y" is no number: the cell there is \'much\''),
        ({"y": waves(50), "d": ["x"] * 50}, {"value": "y", "date": "d"}, 'column "d" is no date'),
        ({"y": waves(50)}, {"value": "y", "covariates": ["y"]}, '"y" is named twice'),
        ({"y": [math.nan] * 50}, {"value": "y"}, '"y" holds nothing, no numbers|"y" is empty'),
        ({"y": [math.nan if i % 3 else 1.0 * i for i in range(100)]}, {"value": "y", "gaps": "split", "horizon": 3}, "fill gaps"),
    ],
)  # fmt: skip
def test_what_is_no_series_is_one_line(table, settings, message):
    with pytest.raises(TableError, match=message) as raised:
        TimeSeriesDataset(table, **{"horizon": 5, **settings})
    assert "\n" not in str(raised.value)


def test_settings_out_of_range():
    for wrong in ({"horizon": 0}, {"window": 0}, {"season": -1}, {"fraction": 1.0}, {"gaps": "jump"}):
        with pytest.raises(ValueError, match="TimeSeriesDataset"):
            TimeSeriesDataset({"y": waves(50)}, **wrong)


def test_an_untidy_file(tmp_path):
    cells = ["" if i == 7 else f"{v:.4f}".replace(".", ",") for i, v in enumerate(waves(90))]
    lines = [f"{day};{cell};x" for day, cell in zip(days("2021-01-01", 90), cells, strict=True)]
    (tmp_path / "untidy.csv").write_bytes(("\ufeffDay ; Level;kind\r\n" + "\r\n".join(lines[::-1]) + "\r\n").encode())
    found = TimeSeriesDataset(tmp_path / "untidy.csv", "Level", horizon=7, window=14)
    assert found.series.layout.date == ["Day"] and found.series.later(1) == ["2021-04-01"] and np.isnan(found.series.values[7, 0])
    said = " ".join(found.notes)
    assert "semicolons" in said and "newest row comes first" in said and "1 of 90 steps are missing" in said

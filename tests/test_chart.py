"""The SVG charts: valid, readable, the same for the same numbers, and unshaken by odd values."""

import itertools
import math
import re
from xml.etree import ElementTree

import pytest

from gradlab.viz.axis_ticks import label, linear_axis, log_axis, nice_step
from gradlab.viz.chart import LIGHT, PLOT_HEIGHT, PLOT_WIDTH, Panel, Series, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def chart(*series: Series, **options) -> ElementTree.Element:
    return ElementTree.fromstring(line_chart([Panel("Loss", "epoch", series, **options)], "A run"))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


class TestTicks:
    @pytest.mark.parametrize(("span", "count", "step"), [(100, 5, 20), (1, 5, 0.2), (0.3, 3, 0.1), (7, 5, 2), (1e-7, 4, 5e-8)])
    def test_nice_step(self, span, count, step):
        assert nice_step(span, count) == pytest.approx(step)

    def test_ends_are_marks(self):
        axis = linear_axis([31.0, 99.4])
        assert (axis.low, axis.high) == (20, 100)
        assert axis.ticks == (20, 40, 60, 80, 100)

    def test_accuracy_never_goes_beyond_100(self):
        for low in (0.0, 3.7, 50.1, 96.2, 99.99):
            assert linear_axis([low, 100.0]).high == pytest.approx(100)

    def test_tight_and_whole(self):
        axis = linear_axis([1, 3], 8, tight=True, whole=True)
        assert (axis.low, axis.high, axis.ticks) == (1, 3, (1, 2, 3))

    def test_one_value_lies_in_the_middle(self):
        for value in (5.0, 0.0, -2.0):
            assert linear_axis([value]).place(value) == pytest.approx(0.5)

    def test_no_values(self):
        assert linear_axis([math.nan, math.inf]).ticks == pytest.approx((0, 0.2, 0.4, 0.6, 0.8, 1))
        assert not log_axis([0.0, -1.0]).log

    def test_log(self):
        axis = log_axis([0.034, 1.7])
        assert (axis.low, axis.high) == pytest.approx((0.02, 2))
        assert axis.ticks == pytest.approx((0.02, 0.05, 0.1, 0.2, 0.5, 1, 2))
        assert axis.place(math.sqrt(0.02 * 2)) == pytest.approx(0.5)
        assert log_axis([1e-6, 1.0]).ticks == pytest.approx([10.0**power for power in range(-6, 1)])

    @pytest.mark.parametrize(
        ("value", "step", "written"),
        [(0.0, 0.2, "0"), (0.4, 0.2, "0.4"), (20.0, 20.0, "20"), (1500.0, 500.0, "1,500"), (-0.25, 0.05, "−0.25"),
         (3e-5, None, "3e−5"), (2.5e7, None, "2.5e7"), (0.01234, None, "0.0123"), (99.166, None, "99.2"), (100.0, None, "100")],
    )  # fmt: skip
    def test_label(self, value, step, written):
        assert label(value, step) == written


class TestChart:
    def test_every_point_has_its_place(self):
        root = chart(Series("held-out", [1, 2, 3], [0.0, 5.0, 10.0]))
        (line,) = root.iter(f"{SVG}polyline")
        assert line.get("points") == f"0.0,{PLOT_HEIGHT}.0 {PLOT_WIDTH / 2:.1f},{PLOT_HEIGHT / 2:.1f} {PLOT_WIDTH}.0,0.0"
        assert len(list(root.iter(f"{SVG}circle"))) == 3

    def test_words(self):
        written = texts(chart(Series("held-out", [1, 2], [4.0, 2.5]), Series("training", [1, 2], [3.0, 1.25])))
        assert {"A run", "Loss", "epoch", "held-out", "training", "2.50", "1.25"} <= set(written)

    def test_markup_in_names_is_text(self):
        root = chart(Series('<a> & "b"', [1, 2], [1, 2]))
        assert '<a> & "b"' in texts(root)

    def test_gaps(self):
        """A NaN interrupts the line; a point alone between two of them is still seen."""
        root = chart(Series("x", list(range(60)), [math.nan if index in {20, 22} else float(index) for index in range(60)]))
        assert len(list(root.iter(f"{SVG}polyline"))) == 2
        assert len(list(root.iter(f"{SVG}circle"))) == 2  # the lone point and the end

    def test_not_positive_on_a_log_axis(self):
        root = chart(Series("x", [1, 2, 3, 4], [1.0, 0.0, 2.0, 3.0]), log=True)
        assert "nan" not in ElementTree.tostring(root, encoding="unicode")
        assert len(list(root.iter(f"{SVG}polyline"))) == 1

    @pytest.mark.parametrize("values", [[], [math.nan], [math.inf, -math.inf]])
    def test_nothing_to_show(self, values):
        root = chart(Series("x", list(range(len(values))), values), log=True)
        assert "no values yet" in texts(root)

    def test_end_values_do_not_overlap(self):
        root = chart(*(Series(str(index), [1, 2], [3.0, 1.0]) for index in range(4)), Series("low", [1, 2], [3.0, 0.0]))
        ends = sorted(float(element.get("y")) for element in root.iter(f"{SVG}text") if "end" in (element.get("class") or ""))
        assert all(after - before >= 12.9 for before, after in itertools.pairwise(ends))
        assert ends[-1] <= PLOT_HEIGHT + 5

    def test_more_series_than_colours(self):
        root = chart(*(Series(str(index), [1, 2], [0.0, index]) for index in range(len(LIGHT) + 2)))
        assert len(list(root.iter(f"{SVG}polyline"))) == len(LIGHT) + 2

    def test_everything_lies_inside(self):
        root = chart(Series("a", [1, 5], [1e-9, 1e9]), Series("b", [2, 3], [-5.0, 5.0]))
        inside = [float(value) for circle in root.iter(f"{SVG}circle") for value in (circle.get("cx"), circle.get("cy"))]
        assert min(inside) >= 0 and max(inside) <= max(PLOT_WIDTH, PLOT_HEIGHT)

    def test_it_stands_alone(self):
        """Nothing is fetched from anywhere, and the reader's dark setting is followed."""
        text = line_chart([Panel("Loss", "epoch", [Series("x", [1, 2], [1, 2])])], "A run", "a subtitle")
        assert not re.findall(r"href|url\(|@import|<script", text)
        assert "prefers-color-scheme:dark" in text
        assert ElementTree.fromstring(text).find(f"{SVG}desc").text == "Loss, x: from 1 to 2."

    def test_the_same_numbers_give_the_same_bytes(self):
        panels = [Panel("Loss", "epoch", [Series("x", [1, 2], [0.1, 0.2])])]
        assert line_chart(panels, "A") == line_chart(panels, "A")

    def test_mistakes(self):
        with pytest.raises(ValueError, match="at least one panel"):
            line_chart([], "A")
        with pytest.raises(ValueError, match="2 values of x and 1 of y"):
            Series("x", [1, 2], [1])

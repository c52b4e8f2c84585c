"""Line charts as SVG text, with nothing but the standard library: for run folders, reports and documentation.

The picture follows the reader's light or dark setting, paints its own background (so it can be read on any page), and
tells its lines apart by dashes as well as by colours. The same numbers give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradlab.viz.axis_ticks import Axis, label, linear_axis, log_axis
from gradlab.viz.svg_text import escape

PLOT_WIDTH, PLOT_HEIGHT = 330, 210
LEFT, RIGHT, ABOVE, BELOW = 52, 58, 44, 46  # around a plot: tick labels, end values, panel title, x axis
MARGIN, HEADING = 14, 62
LINE_HEIGHT = 13.0  # least distance between two end values, in pixels
NARROW, WIDE = frozenset("fijlrtI.,:;'|!()[]- "), frozenset("mwMW&%@<>=+")
MANY_POINTS = 40  # beyond this many points a line carries no dots

# Blue, orange, green, pink, purple: distinct in the common kinds of colour blindness; one set for each background.
LIGHT = ("#1f6feb", "#d9730d", "#1a8754", "#c2387f", "#7c4ddb")
DARK = ("#6cb0ff", "#ffa657", "#56d391", "#ff8fc4", "#b79bff")
DASHES = ("none", "7 4", "2 4", "10 3 2 3", "4 2")

STYLE = """
.card{fill:#ffffff;stroke:#d9dee5}.grid{stroke:#e7eaef}.axis{stroke:#8c96a3}
text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",Arial,sans-serif;fill:#5b6572}
.title{font-size:16px;font-weight:600;fill:#1c2128}.panel{font-size:13px;font-weight:600;fill:#1c2128}
.subtitle{font-size:12px}.end{font-weight:600}.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
"""
DARK_STYLE = """
.card{fill:#14181f;stroke:#2d343e}.grid{stroke:#252c36}.axis{stroke:#6d7885}text{fill:#9aa5b1}
.title,.panel{fill:#e9edf2}
"""


@dataclass(frozen=True)
class Series:
    """One line: a name, and points of equal number in x and y. Points that are not finite are left out as gaps."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r}: {len(self.x)} values of x and {len(self.y)} of y")


@dataclass(frozen=True)
class Panel:
    """One plot: its title names the quantity and unit of y. `whole_x` marks x at integers only (epochs)."""

    title: str
    x_label: str
    series: Sequence[Series]
    log: bool = False
    whole_x: bool = False
    log_x: bool = False


def line_chart(panels: Sequence[Panel], title: str, subtitle: str = "") -> str:
    """The panels side by side under a heading, as a complete SVG document. Raises ValueError without a panel."""
    if not panels:
        raise ValueError("a chart needs at least one panel")
    step = LEFT + PLOT_WIDTH + RIGHT
    width, height = 2 * MARGIN + step * len(panels), HEADING + ABOVE + PLOT_HEIGHT + BELOW + MARGIN // 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(description(panels))}</desc>",
        f"<style>{style_sheet()}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
        text(MARGIN + 12, 33 if subtitle else 42, title, "title"),
        text(MARGIN + 12, 54, subtitle, "subtitle") if subtitle else "",
    ]
    for index, panel in enumerate(panels):
        parts.append(f'<g transform="translate({MARGIN + LEFT + index * step},{HEADING + ABOVE})">')
        parts += draw_panel(panel)
        parts.append("</g>")
    return "\n".join(part for part in [*parts, "</svg>"] if part) + "\n"


def style_sheet() -> str:
    """The rules for light, then for dark where the reader asks for it."""
    light = "".join(colour_rules(index, colour) for index, colour in enumerate(LIGHT))
    dark = "".join(colour_rules(index, colour) for index, colour in enumerate(DARK))
    dashes = "".join(f".d{index}{{stroke-dasharray:{dash}}}" for index, dash in enumerate(DASHES))
    return f"{STYLE}{light}\n{dashes}\n@media (prefers-color-scheme:dark){{{DARK_STYLE}{dark}}}\n"


def colour_rules(index: int, colour: str) -> str:
    return f".s{index}{{stroke:{colour}}}.f{index}{{fill:{colour}}}"


def description(panels: Sequence[Panel]) -> str:
    """The chart in words, for readers who cannot see it: where each line starts and ends."""
    lines = []
    for panel in panels:
        for series in panel.series:
            values = [value for value in series.y if abs(value) < float("inf")]
            course = f"from {label(values[0])} to {label(values[-1])}" if values else "no values"
            lines.append(f"{panel.title}, {series.name}: {course}.")
    return " ".join(lines)


def draw_panel(panel: Panel) -> list[str]:
    """The elements of one plot, in coordinates where its upper left corner is (0, 0)."""
    values = [value for series in panel.series for value in series.y]
    y_axis = log_axis(values) if panel.log else linear_axis(values)
    along = [value for series in panel.series for value in series.x]
    x_axis = log_axis(along) if panel.log_x else linear_axis(along, 8, tight=True, whole=panel.whole_x)
    parts = [text(12 - LEFT, -21, panel.title, "panel")]
    parts += legend(panel.series)
    parts += grid(y_axis) + base_line(x_axis, panel.x_label)
    ends: list[tuple[float, int, float]] = []
    for index, series in enumerate(panel.series):
        shown = [
            (x_axis.place(x) * PLOT_WIDTH, (1 - y_axis.place(y)) * PLOT_HEIGHT, y)
            if x_axis.shows(x) and y_axis.shows(y)
            else None
            for x, y in zip(series.x, series.y)
        ]
        points = [point for point in shown if point is not None]
        parts += draw_line(shown, index % len(LIGHT), dots=len(points) <= MANY_POINTS)
        if points:
            ends.append((points[-1][1], index % len(LIGHT), points[-1][2]))
    if not ends:
        parts.append(text(PLOT_WIDTH / 2, PLOT_HEIGHT / 2 + 4, "no values yet", anchor="middle"))
    return parts + end_values(ends)


def grid(axis: Axis) -> list[str]:
    step = axis.ticks[1] - axis.ticks[0] if len(axis.ticks) > 1 and not axis.log else None
    parts = []
    for tick in axis.ticks:
        y = (1 - axis.place(tick)) * PLOT_HEIGHT
        parts.append(f'<line class="grid" x1="0" x2="{PLOT_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        name = label(tick, step) if step is not None else f"{tick:.6g}" if 1e-4 <= tick < 1e6 else label(tick)
        parts.append(text(-9, y + 4, name, anchor="end"))
    return parts


def base_line(axis: Axis, name: str) -> list[str]:
    parts = [f'<line class="axis" x1="0" x2="{PLOT_WIDTH}" y1="{PLOT_HEIGHT}" y2="{PLOT_HEIGHT}"/>']
    step = axis.ticks[1] - axis.ticks[0] if len(axis.ticks) > 1 and not axis.log else None
    for tick in axis.ticks:
        x = axis.place(tick) * PLOT_WIDTH
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{PLOT_HEIGHT}" y2="{PLOT_HEIGHT + 4}"/>')
        parts.append(text(x, PLOT_HEIGHT + 18, f"{tick:.6g}" if axis.log else label(tick, step), anchor="middle"))
    parts.append(text(PLOT_WIDTH / 2, PLOT_HEIGHT + 36, name, anchor="middle"))
    return parts


def draw_line(shown: Sequence[tuple[float, float, float] | None], index: int, *, dots: bool) -> list[str]:
    """The line through the points; None is a gap. A point between two gaps has no line, so it always has a dot."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for point in shown:
        if point is None:
            runs.append([])
        else:
            runs[-1].append(point)
    parts = []
    last = next((run[-1] for run in reversed(runs) if run), None)
    for run in runs:
        if len(run) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in run)
            parts.append(f'<polyline class="line s{index} d{index}" points="{path}"/>')
        marked = run if dots or len(run) == 1 else [point for point in run if point is last]
        parts += [f'<circle class="f{index}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y, _ in marked]
    return parts


def legend(series: Sequence[Series]) -> list[str]:
    """A stroke and a name for each line, right-aligned over the plot."""
    parts = []
    x = float(PLOT_WIDTH)
    for index, one in reversed(list(enumerate(series))):
        parts.append(text(x, -22, one.name, anchor="end"))
        style = index % len(LIGHT)
        x -= text_width(one.name)
        parts.append(f'<line class="line s{style} d{style}" x1="{x - 30:.1f}" x2="{x - 8:.1f}" y1="-26" y2="-26"/>')
        x -= 46
    return parts


def text_width(content: str) -> float:
    """About how many pixels a text of 11 pixels takes: SVG cannot measure, and fonts differ."""
    return sum(3.8 if letter in NARROW else 9.4 if letter in WIDE else 6.7 for letter in content)


def end_values(ends: Sequence[tuple[float, int, float]]) -> list[str]:
    """The last value of each line beside its end, pushed apart where two would overlap."""
    parts = []
    free = -float("inf")
    ordered = sorted(ends)
    # Start high enough that the whole stack still ends inside the plot.
    for position, (y, index, value) in enumerate(ordered):
        lowest = PLOT_HEIGHT - LINE_HEIGHT * (len(ordered) - 1 - position)
        y = max(min(y, lowest), free + LINE_HEIGHT)
        free = y
        parts.append(text(PLOT_WIDTH + 9, y + 4, label(value), f"end f{index}"))
    return parts


def text(x: float, y: float, content: str, style: str = "", anchor: str = "") -> str:
    style = f' class="{style}"' if style else ""
    anchor = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}{anchor}>{escape(content)}</text>'

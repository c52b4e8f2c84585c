"""Pictures: graphs and charts as SVG text. Needs nothing but the standard library; any program may use it."""

from gradlab.viz.explanation import Explanation, explain
from gradlab.viz.picture import Picture, graph

__all__ = ["Explanation", "Picture", "explain", "graph"]

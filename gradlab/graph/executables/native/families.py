"""The lowerings that need rows of `ops/` themselves, beside those of the backend: importing this module registers all."""

from gradlab.backends.native.lowerings import families as families
from gradlab.graph.executables.native import reordering as reordering, unrolling as unrolling

__all__ = ["families", "reordering", "unrolling"]

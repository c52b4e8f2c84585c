"""The lowerings that need rows of `ops/` themselves, beside those of the backend: importing this module registers all."""

from gradlab.backends.native.lowerings import families as families
from gradlab.graph.executables.native import random as random, reordering as reordering, unrolling as unrolling

__all__ = ["families", "random", "reordering", "unrolling"]

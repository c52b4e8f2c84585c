"""Passes over graphs of `gl.fx`: shapes of all values, and a module split into several."""

from gradlab.fx.passes import shape_prop as shape_prop, split_module as split_module

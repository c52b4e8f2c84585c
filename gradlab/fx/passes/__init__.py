"""Passes over graphs."""

from gradlab.fx.passes import shape_prop as shape_prop, split_module as split_module

"""Rows as C: each module registers the emission of a family."""

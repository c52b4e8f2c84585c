"""Kernels that take sizes and steps as parameters, so that few are enough for all shapes: for rows that run by themselves."""

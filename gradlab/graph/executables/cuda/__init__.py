"""Programs on a GPU: rows launched into planned memory, elementwise chains as generated kernels, the whole run captured in one graph."""

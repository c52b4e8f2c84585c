"""Lines of calls by NumPy: one Python function of planned memory, chains in blocks that fit the cache, large rows on several threads."""

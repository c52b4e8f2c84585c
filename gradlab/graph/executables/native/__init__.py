"""Lines of calls as machine code: places for values, tasks for the thread pool, texts of fused loops. The rest runs by NumPy."""

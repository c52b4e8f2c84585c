"""Where a compiled step spends its time: milliseconds of each task, summed by what the task is.

    python bench/compiled_tasks.py gpt
"""

import collections
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import workloads

import gradlab as gl


def main():
    run, whole = workloads.prepared(sys.argv[1], gl, gl.compile)
    for _ in range(4):
        run()
    executable = whole.programs[0].runner.executable
    names = [f"{call.op.name} {tuple(call.outputs[0].spec.shape)}" if call else "loop" for call in executable._calls]
    for task, step in executable.chains.items():
        names[task] = str(step)
    totals = collections.Counter()
    rounds = 3
    for _ in range(rounds):
        for segment in executable.segments:
            if isinstance(segment, tuple):
                for task in range(*segment):
                    start = time.perf_counter()
                    executable._run(executable._table, task, task + 1, executable._bases_at, executable._threads)
                    totals[names[task]] += time.perf_counter() - start
            else:
                start = time.perf_counter()
                segment()
                totals["numpy " + segment.__qualname__] += time.perf_counter() - start
    for what, seconds in totals.most_common(30):
        print(f"{seconds / rounds * 1e3:9.3f} ms  {what}")
    print(f"{sum(totals.values()) / rounds * 1e3:9.3f} ms")


if __name__ == "__main__":
    main()

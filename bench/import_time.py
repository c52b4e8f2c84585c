"""What `import gradlab` costs beyond NumPy's own import; the aim is under 0.15 s.

Each import runs in a fresh interpreter, in turns, so that a slow moment of the machine touches all alike:

    python bench/import_time.py
"""

import argparse
import statistics
import subprocess
import sys

STATEMENTS = ("pass", "import numpy", "import numpy, ml_dtypes", "import numpy, gradlab")
PROGRAM = "import time; start = time.perf_counter()\n{}\nprint(time.perf_counter() - start)"
AIM = 0.15


def seconds(statement: str) -> float:
    """Seconds one statement takes in a fresh interpreter, without the interpreter's own start."""
    run = subprocess.run([sys.executable, "-c", PROGRAM.format(statement)], capture_output=True, text=True, check=True)
    return float(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="What `import gradlab` costs beyond NumPy's own import.")
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--smoke", action="store_true", help="two runs, to see that the program works")
    options = parser.parse_args()
    runs = 2 if options.smoke else options.runs

    for statement in STATEMENTS:  # once, unmeasured: byte code is written and files are read
        seconds(statement)
    times: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for _ in range(runs):
        for statement in STATEMENTS:
            times[statement].append(seconds(statement))

    print(f"Python {sys.version.split()[0]}, {runs} runs each, milliseconds")
    print(f"{'':<26}{'median':>9}{'fastest':>9}{'slowest':>9}")
    for statement, values in times.items():
        row = (statistics.median(values), min(values), max(values))
        print(f"{statement:<26}" + "".join(f"{1000 * value:9.1f}" for value in row))
    beyond = statistics.median(times[STATEMENTS[3]]) - statistics.median(times[STATEMENTS[1]])
    print(f"gradlab beyond NumPy: {1000 * beyond:.1f} ms (aim: under {1000 * AIM:.0f} ms)")


if __name__ == "__main__":
    main()

"""How long a compiled step takes until its first replay, with an empty cache of machine code and with a full one, and where that goes.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/compile_time.py [names] [--cores 2] [--rounds 1] [--smoke]

Every measurement is a process of its own: the first call (eager), the second (trace, passes, machine code, one run), the third (the first
replay). Cold: GRADLAB_CACHE is an empty folder; warm: the folder that the cold one left. Eager rows run in NumPy, as in any process of a
machine where nothing is compiled yet; the compiler that would work for them in the background does not begin. Everything computes on one
thread, since idle threads of BLAS take processor time.

cold, warm  processor seconds of Python and those of the compilers, spread over the cores in the order in which they began: what the clock
            says on a quiet machine; in brackets what it said here
python      processor seconds of the three calls, warm
compilers   of all compilers; in brackets how many there were and what the dearest took
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import workloads

NAMES = (*workloads.NAMES, *workloads.FURTHER)


def first_replay(name):
    """What three calls of a step took, in this process."""
    import gradlab
    from gradlab.backends.native import compile_jobs, compiler

    jobs = []

    class Timed(subprocess.Popen):
        """A compiler whose processor time is noted."""

        def __init__(self, command, *rest, **named):
            self.what, self.begun = Path(command[-3]).name, time.perf_counter()
            super().__init__(command, *rest, **named)

        def _try_wait(self, flags):
            try:
                pid, status, usage = os.wait4(self.pid, flags)
            except ChildProcessError:
                return self.pid, 0
            if pid == self.pid:
                jobs.append((self.begun, self.what, usage.ru_utime + usage.ru_stime))
            return pid, status

    class Module:
        """`subprocess`, with that compiler."""

        def __getattr__(self, wanted):
            return Timed if wanted == "Popen" else getattr(subprocess, wanted)

    compile_jobs.subprocess = Module()
    compiler.compiles()  # finding the compiler is import's time
    step, _ = workloads.prepared(name, gradlab, gradlab.compile)
    clock, processor = time.perf_counter(), time.process_time()
    parts = []
    for _ in range(3):
        before = time.process_time()
        float(step())
        parts.append(time.process_time() - before)
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    return {"clock": clock, "python": processor, "parts": parts, "jobs": [job for _, *job in sorted(jobs)]}


def spread(jobs, cores):
    """Seconds until all jobs are done, each begun by the core that is free first."""
    free = [0.0] * cores
    for seconds in jobs:
        i = free.index(min(free))
        free[i] += seconds
    return max(free)


def apart(name, cache, args):
    """The same by a process of its own, with this cache."""
    settings = {"GRADLAB_CACHE": cache, "GRADLAB_NATIVE": "0", "GRADLAB_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = [sys.executable, __file__, "--one", name]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path, **settings})
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        sys.exit(f"{name} failed: {done.stderr}")
    return json.loads(lines[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--cores", type=int, default=2, help="on which compilers work side by side")
    parser.add_argument("--rounds", type=int, default=1, help="of which the least counts")
    parser.add_argument("--smoke", action="store_true", help="tiny alone, to see that it runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(first_replay(args.one)))
        return 0
    if unknown := [name for name in args.names if name not in NAMES]:
        parser.error(f"there is no workload {unknown[0]}: {', '.join(NAMES)}")
    print(f"{'':11}{'cold s':>16}{'warm s':>16}{'python: eager, compile, replay':>34}  compilers")
    for name in ["tiny"] if args.smoke else args.names:
        cold, warm = [], []
        for _ in range(args.rounds):
            with tempfile.TemporaryDirectory() as cache:
                cold.append(apart(name, cache, args))
                warm.append(apart(name, cache, args))
        seconds = {}
        for state, runs in (("cold", cold), ("warm", warm)):
            quiet = min(one["python"] + spread([s for _, s in one["jobs"]], args.cores) for one in runs)
            seconds[state] = f"{quiet:.2f} ({min(one['clock'] for one in runs):.2f})"
        least = min(warm, key=lambda one: one["python"])
        parts = ", ".join(f"{s:.3f}" for s in least["parts"])
        jobs = min((one["jobs"] for one in cold), key=lambda found: sum(s for _, s in found))
        dear = ", ".join(f"{what} {s:.2f}" for what, s in sorted(jobs, key=lambda job: -job[1])[:4])
        compilers = f"{sum(s for _, s in jobs):.2f} ({len(jobs)}: {dear})"
        print(f"{name:11}{seconds['cold']:>16}{seconds['warm']:>16}{parts:>34}  {compilers}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

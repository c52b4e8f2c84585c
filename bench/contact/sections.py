"""Runs the sections of `first_contact.sh`: each a process of its own with a limit, within nine minutes in all.

What fails is said at once and again at the end. In $OUT: `results.jsonl` (a line for each section, and each line that a section prints
behind an @), `sections.xml` and `parity.xml` (JUnit), `log.txt.gz` (everything), `summary.txt`.
"""

import argparse
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
WORKLOADS = ("tiny", "mlp", "mlp-adam", "cnn", "gpt", "lstm", "resnet")
FAMILIES = (
    "add", "sum", "softmax", "layer_norm", "convolution", "max_pool", "cross_entropy", "sort", "cumsum", "random_uniform",
    "scaled_dot_product_attention", "lstm_cell", "embedding", "cholesky", "matmul", "cast",
)  # fmt: skip
TROUBLE = re.compile(r"Error|error|FAILED|xception|fault|crashed|lost to")


class Section(NamedTuple):
    """name, its limit in seconds, its command, and what it adds to the environment."""

    name: str
    limit: float
    command: list[str]
    environment: Mapping[str, str] = MappingProxyType({})


def sections(out: Path, emulated: bool, cubins: Path) -> list[Section]:
    """In their order: a section is of use only where those before it went well."""
    python = sys.executable

    def script(name: str, *arguments: str) -> list[str]:
        return [python, str(HERE / name), *arguments]

    def bench(name: str, *arguments: str) -> list[str]:
        return [python, str(ROOT / "bench" / name), *arguments, *(["--smoke"] if emulated else [])]

    def tests(*arguments: str) -> list[str]:
        return [python, "-m", "pytest", "-q", "--tb=line", "-rf", "-p", "no:cacheprovider", *arguments]

    few = ("tiny",) if emulated else WORKLOADS
    families = FAMILIES[:3] if emulated else FAMILIES
    rows = "tests/test_cuda_rows.py"
    blocking = {"CUDA_LAUNCH_BLOCKING": "1"}
    found = [] if emulated else [Section("there: nvidia-smi", 15, ["nvidia-smi"])]
    found.append(Section("there: info", 30, [python, "-m", "gradlab", "info"]))
    found.append(Section("there: libraries", 30, script("ladder.py", "libraries")))
    rungs = ("driver", "copies", "kernel", "thread", "gemm", "epilogues", "capture")
    found += [Section(f"ladder: {rung}", 60, script("ladder.py", rung)) for rung in rungs]
    chosen = " or ".join(f"test_value and {name}-0-float32" for name in families)
    found.append(Section("ladder: one row of each family", 60, tests("-x", "-n", "0", rows, "-k", chosen), blocking))
    found += [Section(f"ladder: step {name}", 60, script("ladder.py", "step", name)) for name in few]
    for precision in ("float32",) if emulated else ("float32", "tf32", "bfloat16"):
        found.append(Section(f"numbers: gradlab {precision}", 60, script("steps.py", "gradlab", precision, *few)))
        if not emulated:
            found.append(Section(f"numbers: torch {precision}", 60, script("steps.py", "torch", precision, *few)))
    found.append(Section("numbers: bandwidth", 120 if emulated else 40, bench("bandwidth.py")))
    found.append(Section("numbers: beside the libraries", 60, script("beside.py", *(["--smoke"] if emulated else []))))
    if not emulated:
        found.append(Section("numbers: host cost", 40, bench("launch_cost.py")))
    whole = ["-n", "12", "--device", "cuda", "tests/test_cuda_rows_fast.py"]
    if emulated:
        whole = ["-n", "0", "-k", "test_value and (add-0 or exp-0)"]
    found.append(Section("parity of every row", 150, tests(rows, *whole, f"--junitxml={out / 'parity.xml'}")))
    if not emulated:
        modest = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        found += [Section(f"numbers: jax {p}", 60, script("steps.py", "jax", p, *few), modest) for p in ("float32", "tf32")]
        found.append(Section("memcheck of a step", 60, ["compute-sanitizer", "--error-exitcode", "9", *script("ladder.py", "step", "mlp")]))
    return found


def kernels_in(cubins: Path) -> Section:
    """What fills the archive of kernels, in the background, where none was brought along."""
    return Section("warm", 240, [sys.executable, "-m", "gradlab.testing.warm", "-j", "12", "--arch", "90", "--out", str(cubins)])


class Result(NamedTuple):
    name: str
    code: int
    seconds: float
    line: str  # the one that says most
    text: str


def run(section: Section, limit: float, environment: dict[str, str]) -> Result:
    """One section, in a process group of its own: at the limit it is interrupted, so that pytest still sums up, then killed."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                section.command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env={**environment, **section.environment},
                start_new_session=True,
            )  # fmt: skip
            code = _wait(process, limit)
        except OSError as error:
            log.write(str(error).encode())
            code = 127
        log.seek(0)
        text = log.read().decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    troubled = [line for line in lines if TROUBLE.search(line)] if code else []
    line = (troubled or lines or [""])[0 if troubled else -1]
    return Result(section.name, code, time.monotonic() - begun, line.strip()[:220], text)


def _wait(process: "subprocess.Popen[bytes]", limit: float) -> int:
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        for number, patience in ((signal.SIGINT, 6.0), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(process.pid, number)
                process.wait(patience)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        return 124


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulated", action="store_true", help="shortened, on the emulated GPU")
    parser.add_argument("--only", default="", help="regular expression: sections whose name has a match")
    parser.add_argument("--seconds", type=float, default=540, help="for all of them")
    options = parser.parse_args()
    out = Path(os.environ.get("OUT", ROOT / "build" / "contact")).resolve()
    out.mkdir(parents=True, exist_ok=True)
    cubins = ROOT / "build" / "cubins"
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment["PYTHONUNBUFFERED"] = "1"
    environment.setdefault("GRADLAB_KERNELS", str(cubins))
    environment.pop("GRADLAB_CUDA", None)
    if options.emulated:
        environment["GRADLAB_CUDA"] = "emulated"
    begun = time.monotonic()
    chosen = [s for s in sections(out, options.emulated, cubins) if re.search(options.only, s.name)]
    warming = None
    if not options.emulated and not any(cubins.glob("sm_*.zip")):
        nowhere = subprocess.DEVNULL
        warming = subprocess.Popen(kernels_in(cubins).command, cwd=ROOT, env=environment, stdout=nowhere, stderr=nowhere)
    results = []
    with gzip.open(out / "log.txt.gz", "wt") as log, (out / "results.jsonl").open("w") as lines:
        for section in chosen:
            left = options.seconds - (time.monotonic() - begun) - 10
            if left < 5:
                result = Result(section.name, 125, 0.0, "no time was left", "")
            else:
                result = run(section, min(section.limit, left), environment)
            results.append(result)
            at = time.monotonic() - begun
            log.write(f"\n=== {result.name} (exit {result.code}, {result.seconds:.0f} s, at {at:.0f} s)\n{result.text}")
            made = {"section": result.name, "exit": result.code, "seconds": round(result.seconds, 1), "line": result.line}
            lines.write(json.dumps(made) + "\n")
            lines.writelines(line[1:] + "\n" for line in result.text.splitlines() if line.startswith("@{"))
            lines.flush()
            print(line_of(result), flush=True)
    if warming is not None:
        warming.kill()
    _junit(out / "sections.xml", results)
    failed = [r for r in results if r.code]
    summary = ["--- failed", *map(line_of, failed)] if failed else ["--- all went well"]
    summary += ["--- summary", *map(line_of, results), f"{len(results)} sections, {len(failed)} failed, {time.monotonic() - begun:.0f} s"]
    (out / "summary.txt").write_text("\n".join(summary) + "\n", encoding="utf-8")
    print("\n".join(summary))
    return int(bool(failed))


def line_of(result: Result) -> str:
    """A section in one line."""
    said = {0: "ok", 124: "TIME", 125: "SKIPPED"}.get(result.code, f"EXIT {result.code}")
    return f"{result.name:34} {said:8} {result.seconds:5.0f} s  {result.line}"


def _junit(path: Path, results: list[Result]) -> None:
    cases = []
    for r in results:
        kind = "skipped" if r.code == 125 else "failure"
        inner = f"<{kind} message={quoteattr(r.line)}/>" if r.code else ""
        cases.append(f"<testcase classname='first_contact' name={quoteattr(r.name)} time='{r.seconds:.2f}'>{inner}</testcase>")
    failures = sum(r.code not in (0, 125) for r in results)
    head = f"<testsuite name='first_contact' tests='{len(results)}' failures='{failures}' skipped='{sum(r.code == 125 for r in results)}'>"
    path.write_text("\n".join([head, *cases, "</testsuite>", ""]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

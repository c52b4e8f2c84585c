"""What each command is told, and what of that can be refused before anything is loaded. Nothing here imports the engine."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gradlab.cli.arguments import Parser, at_least_two, device, number_from_0, positive_integer, positive_number, seed, target, whole_from_0
from gradlab.cli.failure import Failure
from gradlab.cli.kinds import FUNCTION, NAMES, kind_named

MACHINES = ("x86_64-linux", "aarch64-linux", "armv7-linux", "x86_64-windows", "aarch64-macos", "wasm32")  # gl.deploy.TARGETS
BARE = ("cortex-m3", "cortex-m4")
GOES_ON_WITH = ("kind", "resume", "epochs", "device", "profile", "json")  # what a resumed run may be told


def run(parser: Parser) -> None:
    parser.usage = "gradlab run [options] (script.py | -m module) [arguments of the script]"
    parser.add_argument("--device", help="where new tensors are made, and what cuda means: cpu, cuda, cuda:N, or emulated")
    parser.add_argument("--compile", action="store_true", help="compile the calls of models in training (gl.compile)")
    parser.add_argument("--report", action="store_true", help="go on where a name is missing, and list at the end what was asked for")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="run a module, as `python -m` does")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="the script, and its own arguments")
    parser.checks.append(_check_run)


def _check_run(options: argparse.Namespace) -> None:
    command = options.module if options.module is not None else options.script
    if not command or (options.module is not None and options.script):
        raise Failure("name a script, or a module with -m; gradlab run --help shows how")
    if options.module is None and not os.path.exists(command[0]):
        raise Failure(f"no file {command[0]!r}")
    if options.device is not None and options.device.partition(":")[0] != "emulated":
        device(options.device)


def launch(parser: Parser) -> None:
    parser.usage = "gradlab launch -n N [options] -- (train KIND … | script.py … | -m module … | program …)"
    count = "how many processes, on this machine; there is no default"
    parser.add_argument("-n", "--processes", type=positive_integer, required=True, metavar="N", help=count)
    parser.add_argument("--max-restarts", type=whole_from_0, default=0, metavar="N", help="start again so often when one dies (default: 0)")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="what each process says, in rank-N.log (default: runs/launch-N)")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="what to run; gradlab train goes on from its last checkpoint")
    parser.checks.append(_check_launch)


def _check_launch(options: argparse.Namespace) -> None:
    if options.program[:1] == ["--"]:
        del options.program[0]
    if not options.program:
        raise Failure("say what to run: gradlab launch -n 4 -- train digits")
    if options.program[0].endswith(".py") and not os.path.exists(options.program[0]):
        raise Failure(f"no file {options.program[0]!r}")


def train(parser: Parser, arguments: list[str]) -> None:
    """The options that every run has, and those of the kind that is named in `arguments` or that a run to go on with is of."""
    parser.add_argument("kind", nargs="?", help="; ".join(f"{name}: {kind_named(name).SUMMARY}" for name in (*NAMES, FUNCTION)))
    kind = named(arguments)
    usual = getattr(kind_named(kind), "USUAL", {}) if kind is not None and (kind in NAMES or ":" in kind) else {}
    said = {name: f" (default: {usual.get(name, 'as suits the kind')})" for name in ("epochs", "batch", "lr")}
    parser.add_argument("--epochs", type=positive_integer, metavar="N", help=f"passes over the training data{said['epochs']}")
    parser.add_argument("--batch-size", type=positive_integer, metavar="N", help=f"samples per step{said['batch']}")
    parser.add_argument("--lr", type=positive_number, metavar="RATE", help=f"peak learning rate{said['lr']}")
    parser.add_argument("--seed", type=seed, metavar="N", help="decides every random number of the run (default: 0)")
    parser.add_argument("--device", type=device, metavar="NAME", help="cpu, cuda or cuda:N (default: cuda if there is one)")
    parser.add_argument("--compile", action="store_true", help="one static program for each training step")
    parser.add_argument("--amp", choices=["bfloat16", "float16"], help="mixed precision (default: float32)")
    parser.add_argument("--early-stop", type=positive_integer, metavar="N", help="end after N epochs that were no better (default: never)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="run folder (default: runs/KIND-N)")
    parser.add_argument("--data-dir", type=Path, metavar="FOLDER", help="where what is fetched from addresses is kept (default: a cache)")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with a run, exactly where it was left")
    parser.add_argument("--find-lr", action="store_true", help="try all learning rates, draw the losses, name a rate; no training")
    parser.add_argument("--search", type=at_least_two, metavar="N", help="try N random settings, keep the best run (successive halving)")
    parser.add_argument("--profile", action="store_true", help="show in the report where time and memory go")
    json_lines(parser)
    if kind is not None and kind not in NAMES and ":" not in kind and os.path.exists(kind):
        raise Failure(f"{kind} is data: say what kind of data first, for example gradlab train table {kind}")
    if kind is not None:
        parser.prog += f" {kind}"
        kind_named(kind).configure(parser)
    parser.checks.append(_check_train)


def named(arguments: list[str]) -> str | None:
    """The kind that the command line names: a kind's name wherever it stands, or what stands first."""
    known = [a for a in arguments[:1] if ":" in a] or [a for a in arguments if a in NAMES]
    return known[0] if known else next((a for a in arguments[:1] if not a.startswith("-")), None)


def _check_train(options: argparse.Namespace) -> None:
    if options.kind is None and options.resume is None:
        raise Failure(f"name what to train on: {', '.join((*NAMES, FUNCTION))}; gradlab train KIND --help shows how")
    both = [name for name in ("find_lr", "search", "profile") if getattr(options, name)]
    if len(both) > 1:
        raise Failure(f"{' and '.join('--' + name.replace('_', '-') for name in both)}: one at a time")
    if options.find_lr and options.lr is not None:
        raise Failure("--lr: --find-lr looks for it; give one of them")
    if options.resume is None:
        kind_named(options.kind).source(options)
        return
    given = [name for name, value in vars(options).items() if name not in GOES_ON_WITH and value is not None and value is not False]
    if given:
        name = f"--{given[0].replace('_', '-')}" if given[0] != "file" else options.file
        raise Failure(f"{name}: a resumed run keeps its settings and its data; leave that out, or start a new run without --resume")
    if not options.resume.is_dir():
        raise Failure(f"--resume: there is no run's folder {options.resume}")
    if not any((options.resume / name).is_file() for name in ("run.json", "search.json")):
        raise Failure(f"--resume: {options.resume} is no folder of a run: there is no run.json in it")


def json_lines(parser: Parser) -> None:
    """`--json`, of commands that report."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON, for programs; what else is said goes to stderr")


def predict(parser: Parser) -> None:
    parser.add_argument("run", help="a run's folder")
    parser.add_argument("data", nargs="+", help="data as the run was trained on, what is to be predicted left out")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a CSV file for the predictions (default: stdout)")
    json_lines(parser)


def evaluate(parser: Parser) -> None:
    parser.add_argument("run", help="a run's folder")
    parser.add_argument("data", help="data as the run was trained on")
    json_lines(parser)


def sample(parser: Parser) -> None:
    parser.add_argument("run", help="the folder of a run of a text")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="what the text begins with (default: nothing)")
    parser.add_argument("--length", type=positive_integer, default=500, metavar="N", help="characters to write (default: 500)")
    parser.add_argument("--temperature", type=number_from_0, default=0.8, metavar="T", help="0 takes the likeliest (default: 0.8)")
    parser.add_argument("--top-k", type=positive_integer, metavar="N", help="draw from the N likeliest tokens alone (default: all)")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="decides what is drawn (default: 0)")
    json_lines(parser)


def export(parser: Parser) -> None:
    parser.add_argument("run", help="a run's folder")
    parser.add_argument("--onnx", dest="forms", action="append_const", const="onnx", help="ONNX (needs the packages onnx and onnxruntime)")
    parser.add_argument("--glp", dest="forms", action="append_const", const="glp", help="a traced program, for gl.jit.load")
    parser.add_argument("--c", dest="forms", action="append_const", const="c", help="C, to run with no Python (docs/deploy.md)")
    web = "write a page with the model in it, for any browser, offline (needs the package ziglang)"
    parser.add_argument("--web", type=Path, nargs="?", const=Path(), metavar="FILE", help=web)
    parser.add_argument("--out", type=Path, metavar="FILE", help="where it goes (default: model and its ending in the run's folder)")
    json_lines(parser)
    parser.checks.append(_check_export)


def _check_export(options: argparse.Namespace) -> None:
    forms = [*(options.forms or ()), *(["web"] if options.web is not None else [])]
    if len(forms) != 1:
        raise Failure("say which form: --onnx, --glp, --c or --web, one at a time")
    options.form = forms[0]
    if options.web and options.web != Path() and options.out is None:
        options.out = options.web
    ending = ".html" if options.form == "web" else f".{options.form}"
    if options.out is not None and options.out.suffix not in ("", ending):
        raise Failure(f"--out: {options.out} ends with {options.out.suffix}, and --{options.form} was asked for")


def runs(parser: Parser) -> None:
    parser.add_argument("folder", nargs="?", help="where runs are (default: runs)")
    json_lines(parser)


def parity(parser: Parser) -> None:
    parser.add_argument(
        "target", type=target, metavar="module:function", help="a function that returns (model, inputs) or (model, inputs, loss)"
    )
    parser.add_argument(
        "--device", type=lambda text: text if text == "native" else device(text), default="cuda",
        help="the device to compare with the CPU, or native: the CPU's own kernels beside NumPy (default: cuda)",
    )  # fmt: skip
    parser.add_argument("--steps", type=positive_integer, default=3, help="training steps (default: 3)")
    parser.add_argument("--emulated", action="store_true", help="compare with the emulated GPU: no GPU needed, a C++ compiler is")
    json_lines(parser)


def build(parser: Parser) -> None:
    parser.add_argument("program", metavar="PROGRAM.glp", help="a file that gl.jit.save wrote")
    parser.add_argument("--folder", metavar="FOLDER", help="where the files go (default: beside the program)")
    parser.add_argument("--name", help="of the functions and the files (default: the program's)")
    which = f"compile it, too (default: only write it), for one of {', '.join(MACHINES)} (needs the package ziglang)"
    parser.add_argument("--target", choices=(*MACHINES, *BARE), metavar="MACHINE", help=which)
    static = f"for a machine without an operating system: nothing is allocated, weights are constants (also --target {', '.join(BARE)})"
    parser.add_argument("--static", action="store_true", help=static)
    parser.add_argument("--cpu", metavar="NAME", help="the oldest processor it shall run on, in LLVM's names (default: the target's)")
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=NUMBER", help="a number for an unknown size of the program (repeatable)"
    )
    json_lines(parser)
    parser.checks.append(_check_build)


def _check_build(options: argparse.Namespace) -> None:
    for text in options.size:
        name, _, number = text.partition("=")
        if not name or not number.isdigit():
            raise Failure(f"--size takes NAME=NUMBER, not {text!r}")
    if options.target is not None and options.static != (options.target in BARE):
        raise Failure(f"--static is for {', '.join(BARE)}, and these for it")
    if options.cpu is not None and options.target is None:
        raise Failure("--cpu is of a --target")
    if not Path(options.program).is_file():
        raise Failure(f"no file {options.program!r} here")


def explain(parser: Parser) -> None:
    parser.add_argument(
        "target", type=target, metavar="module:function", help="a function that gives a loss, (model, inputs) or (model, inputs, loss)"
    )
    parser.add_argument("--svg", metavar="FILE", help="write a picture")
    parser.add_argument("--html", metavar="FILE", help="write a page with search, zoom and folding")
    parser.add_argument("--dot", metavar="FILE", help="write Graphviz's language")
    parser.add_argument("--mermaid", metavar="FILE", help="write a Mermaid flowchart")
    parser.add_argument("--depth", type=int, help="fold module calls deeper than this (default: none)")
    parser.add_argument("--repeats", action="store_true", help="show modules that are built alike in full each time")
    json_lines(parser)
    parser.checks.append(_check_explain)


def _check_explain(options: argparse.Namespace) -> None:
    if options.depth is not None and options.depth < 0:
        raise Failure(f"--depth is 0 or more, not {options.depth}")


def kernels(parser: Parser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE.cu", help="CUDA C++ files")
    parser.add_argument("--name", action="append", default=[], help="an instance of a template, such as 'scale<float>' (repeatable)")
    parser.add_argument(
        "--arch", type=positive_integer, action="append", metavar="N",
        help="compile for this architecture, 90 for sm_90 (repeatable; default: all that gradlab supports)",
    )  # fmt: skip
    parser.add_argument("--emulate", action="store_true", help="only run on the emulated GPU; do not compile for real ones")
    parser.add_argument("--sanitize", action="store_true", help="run the kernels also under the address, undefined and thread sanitizers")
    json_lines(parser)
    parser.checks.append(_check_kernels)


def _check_kernels(options: argparse.Namespace) -> None:
    if options.emulate and options.arch:
        raise Failure("--arch is for compiling, which --emulate leaves out; give one of them")
    for name in options.files:
        if not Path(name).is_file():
            raise Failure(f"no file {name!r} here")


def warm(parser: Parser) -> None:
    """What is said meanwhile."""
    parser.add_argument("--background", action="store_true", help="say nothing, at low priority, and not where another process is at it")
    json_lines(parser)


def info(parser: Parser) -> None:
    json_lines(parser)

"""How many nodes the graph of each workload's step has, how many lie behind one another, and why a step is not captured, if it is not.

    python bench/nodes.py [--smoke] [--kinds] [--write] [NAME...]

Nothing is computed (`gradlab/testing/dry_gpu.py`), so no GPU and no compiler are needed, and the numbers are the same on every machine.
`--write` keeps them in nodes.json; tests/test_node_counts.py compares. `paper` is the least that the graph takes on an H100 by its nodes
alone: 1.2 µs for each that lies behind another (facts of CuPy's replay), whatever they compute.
"""

import argparse
import collections
import json
import os
import sys
import types
from pathlib import Path

os.environ["GRADLAB_CUDA"] = "emulated"
sys.path.insert(0, str(Path(__file__).resolve().parent))

import workloads

import gradlab as gl
from gradlab import nn, optim
from gradlab.testing.dry_gpu import dry

OTHER_UNITS = {"gru": "GRU", "rnn": "RNN"}  # the network of `lstm` with other layers
NODE = 1.2  # µs of a replay for each node in a row
FILE = Path(__file__).with_suffix(".json")


def depth(nodes):
    """How many nodes lie behind one another at most."""
    reached = []
    for node in nodes:
        reached.append(1 + max((reached[i] for i in node.after), default=0))
    return max(reached, default=0)


def counted(name):
    """The executable of a workload's compiled step after its third call."""
    layers, name = {**vars(nn), "LSTM": getattr(nn, OTHER_UNITS.get(name, "LSTM"))}, "lstm" if name in OTHER_UNITS else name
    model = workloads.network(name, types.SimpleNamespace(**layers), nn.functional, gl.cat).to("cuda")
    x, y = (gl.from_numpy(a).to("cuda") for a in workloads.data(name))
    step = gl.compile(workloads.step_of(name, model, nn.functional, optim, x, y))
    for _ in range(3):
        step(x, y)
    return step, step.programs[0].runner.executable


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*workloads.NAMES, *OTHER_UNITS])
    parser.add_argument("--kinds", action="store_true", help="what the nodes are")
    parser.add_argument("--write", action="store_true", help=f"keep the numbers in {FILE.name}")
    parser.add_argument("--smoke", action="store_true", help="the same: it takes seconds")
    options = parser.parse_args()
    found = {}
    with dry():
        for name in options.names:
            step, executable = counted(name)
            nodes = [] if executable._graph is None else executable._graph.nodes
            uncaptured = step.stats().uncaptured
            found[name] = {"nodes": len(nodes), "deep": depth(nodes), "launches": executable.launches, "why": executable.why}
            assert uncaptured == ([executable.why] if executable.why else [])
            deep = depth(nodes)
            print(f"{name:10} {len(nodes):4d} nodes, {deep:4d} deep, paper {deep * NODE:6.0f} µs  {executable.why}", flush=True)
            if options.kinds:
                for label, number in collections.Counter(node.label.partition("<")[0] for node in nodes).most_common():
                    print(f"    {number:4d} {label}")
    if options.write:
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()

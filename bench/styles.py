"""One model in three styles: eager, `gl.compile`, `gl.Session`. Equal losses, and what each costs, side by side in one run.

    python bench/styles.py                              the table
    python bench/styles.py --pictures docs/pictures     the three graphs as SVG
"""

import argparse
import statistics
import time
from pathlib import Path

import gradlab as gl
import gradlab.nn.functional as F
from gradlab import data, nn
from gradlab.viz import graph as picture

BATCH, CHECKED = 64, 20


def model():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def batches():
    images, labels = data.digits()
    images = images.reshape(-1, 64).astype("float32") / 16
    return [(images[i : i + BATCH], labels[i : i + BATCH]) for i in range(0, BATCH * CHECKED, BATCH)]


def stepped(compiled):
    net = model()
    opt = gl.optim.Adam(net.parameters(), lr=0.003)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return gl.compile(step) if compiled else step


def eager():
    step = stepped(False)
    return lambda x, y: step(gl.from_numpy(x), gl.from_numpy(y)).item()


def compiled():
    step = stepped(True)
    return lambda x, y: step(gl.from_numpy(x), gl.from_numpy(y)).item()


def defined():
    g = gl.Graph()
    with g.as_default():
        x = gl.placeholder(gl.float32, [None, 64], name="x")
        y = gl.placeholder(gl.int64, [None], name="y")
        net = model()
        loss = F.cross_entropy(net(x), y)
        train = gl.optim.Adam(net.parameters(), lr=0.003).minimize(loss)
    return g, x, y, loss, train


def session():
    g, x, y, loss, train = defined()
    s = gl.Session(g)
    with s.graph.as_default():
        initializer = gl.global_variables_initializer()
    s.run(initializer)
    return lambda a, b: float(s.run([train, loss], {x: a, y: b})[1])


STYLES = {"eager": eager, "compile": compiled, "Session": session}


def table(rounds):
    found = batches()
    steps, losses, first = {}, {}, {}
    for name, make in STYLES.items():
        gl.manual_seed(0)
        start = time.perf_counter()
        steps[name] = make()
        losses[name] = [steps[name](*b) for b in found[:2]]
        first[name] = time.perf_counter() - start
        losses[name] += [steps[name](*b) for b in found[2:]]
    times = {name: [] for name in STYLES}
    for i in range(rounds):  # in turns, so that what else the machine does meets all of them
        for name, step in steps.items():
            start = time.perf_counter()
            step(*found[i % CHECKED])
            times[name].append(time.perf_counter() - start)
    base = losses["eager"]
    print("| style | ms per step (median) | two first steps, with definition or trace | largest relative difference of 20 losses |")
    print("|---|---|---|---|")
    for name in STYLES:
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses[name], base, strict=True))
        print(f"| {name} | {1000 * statistics.median(times[name]):.3f} | {1000 * first[name]:.0f} ms | {worst:.1e} |")


def pictures(folder):
    gl.manual_seed(0)
    x, y = batches()[0]
    x, y = gl.from_numpy(x), gl.from_numpy(y)
    net = model()
    picture(F.cross_entropy(net(x), y)).save(folder / "styles-eager.svg")
    step = stepped(True)
    step(x, y), step(x, y)
    step.graph.picture().save(folder / "styles-compile.svg")
    g, *_, loss, train = defined()
    g.picture([train, loss]).save(folder / "styles-session.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    if arguments.pictures is None:
        table(arguments.rounds)
    else:
        pictures(arguments.pictures)

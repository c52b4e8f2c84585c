"""Models of few bits: accuracy (perplexity), bytes, and milliseconds of a call beside float32 and ONNX Runtime's int8, in one run.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/few_bits.py [mlp cnn resnet gpt] [--rounds 3]

Each model is trained for a short while on the digits (ResNet-20: enlarged to 16 by 16) or on the words of Python's documentation. Times:
one thread, the least of many calls, programs of `gradlab build` and ONNX Runtime in turn. "calibrated": int8 with ranges of some batches;
"dynamic": by the range of each call; "int4": weights of linear layers, inputs by the range of each call.
"""

import argparse
import math
import pydoc_data.topics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from c_runner import compiled, runner, session
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import gradlab as gl
from gradlab import nn
from gradlab.ao import quantization as Q
from gradlab.data import digits, digits_split
from gradlab.models import GPT, DigitsCNN, DigitsMLP, GPTConfig, resnet20
from gradlab.nn import functional as F

LAYERS = {nn.Linear, nn.Conv2d}


def pictures(side):
    pixels, labels = digits()
    x = gl.tensor((pixels / 16).astype(np.float32))[:, None]
    x = x if side == 8 else F.interpolate(x, (side, side), mode="bilinear").expand(-1, 3, -1, -1).contiguous()
    training, held_out = (gl.tensor(rows) for rows in digits_split())
    y = gl.tensor(labels)
    return (x[training], y[training]), (x[held_out], y[held_out])


def text():
    words = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))[:400_000]
    letters = sorted(set(words))
    at = gl.tensor([letters.index(c) for c in words])
    return at[:360_000], at[360_000:], len(letters)


def fitted(model, loss, batches, rate):
    optimizer = gl.optim.AdamW(model.parameters(), rate)

    @gl.compile
    def step(*batch):
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        optimizer.step()
        return value

    for batch in batches:
        step(*batch)
    return model.eval()


def classifier(make, side, epochs):
    gl.manual_seed(0)
    (x, y), held_out = pictures(side)
    batches = [(x[rows], y[rows]) for _ in range(epochs) for rows in gl.randperm(len(x)).split(64) if len(rows) == 64]
    model = fitted(make(), lambda model, x, y: F.cross_entropy(model(x), y), batches, 2e-3)

    def worth(model):
        with gl.no_grad():
            found = gl.cat([model(part).argmax(1) for part in held_out[0].split(60)])
        return 100 * (found == held_out[1]).double().mean().item()

    return model, [x[:256]], held_out[0][:1], worth, "accuracy %"


def writer(steps=400, length=64):
    gl.manual_seed(0)
    training, held_out, letters = text()
    model = GPT(GPTConfig(vocab_size=letters, block_size=length, n_layer=3, n_head=4, n_embd=96))
    cut = lambda data, starts: gl.stack([data[s : s + length + 1] for s in starts])
    rng = np.random.default_rng(0)
    batches = [(b[:, :-1], b[:, 1:]) for b in (cut(training, rng.integers(0, len(training) - length - 1, 16)) for _ in range(steps))]
    score = lambda model, x, y: F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    fitted(model, score, batches, 2e-3)
    test = cut(held_out, range(0, len(held_out) - length - 1, length))[:256]

    def worth(model):
        with gl.no_grad():
            return math.exp(sum(score(model, part[:, :-1], part[:, 1:]).item() * len(part) for part in test.split(32)) / len(test))

    return model, [batch[0] for batch in batches[:8]], test[:1, :-1], worth, "perplexity"


MODELS = {
    "mlp": lambda: classifier(lambda: DigitsMLP(hidden=512), 8, 8), "cnn": lambda: classifier(DigitsCNN, 8, 8),
    "resnet": lambda: classifier(resnet20, 16, 5), "gpt": writer,
}  # fmt: skip


class Batches(CalibrationDataReader):
    def __init__(self, name, batches):
        self.left = [{name: b.numpy()[i : i + 1]} for b in batches for i in range(min(len(b), 32))]

    def get_next(self):
        return self.left.pop() if self.left else None


def theirs(model, example, batches, folder):
    """ONNX Runtime's own int8: static (QDQ, per channel), or dynamic for models of tokens."""
    whole, ready, small = (folder / f"{kind}.onnx" for kind in ("whole", "ready", "small"))
    gl.onnx.export(model, (example,), whole, check=False)
    name = onnxruntime.InferenceSession(whole).get_inputs()[0].name
    quant_pre_process(str(whole), str(ready))
    if example.dtype == gl.int64:
        quantize_dynamic(ready, small, weight_type=QuantType.QUInt8)
    else:
        quantize_static(ready, small, Batches(name, batches), per_channel=True, weight_type=QuantType.QInt8)
    return whole, small


def measure(name, rounds, folder):
    model, batches, example, worth, unit = MODELS[name]()
    seen = Q.prepare(model)
    with gl.no_grad():
        for batch in batches:
            seen(batch)
    kinds = {"float32": model, "calibrated": Q.convert(seen).eval(), "dynamic": Q.quantize_dynamic(model, LAYERS).eval(),
             "int4": Q.quantize_dynamic(model, bits=4).eval()}  # fmt: skip
    source = folder / "in.npy"
    np.save(source, example.numpy())
    whole, small = theirs(model, example, batches, folder)
    engines = {"ONNX Runtime float32": lambda: session(whole, 1, 0.3, source), "ONNX Runtime int8": lambda: session(small, 1, 0.3, source)}
    sizes, found = {"ONNX Runtime float32": whole.stat().st_size, "ONNX Runtime int8": small.stat().st_size}, {}
    for kind, made in kinds.items():
        found[kind] = worth(made)
        with gl.no_grad():
            built = gl.deploy.build(gl.jit.trace(made, (example,)), folder, name=f"{name}_{kind}")
        program = compiled(built, built.name)
        engines[kind] = lambda program=program, built=built: runner(program, built, source, 300)[0]
        sizes[kind] = built.weights.stat().st_size
    times = dict.fromkeys(engines, 1e9)
    for _ in range(rounds):
        for kind, run in engines.items():
            times[kind] = min(times[kind], run())
    for kind in (*kinds, "ONNX Runtime float32", "ONNX Runtime int8"):
        value = f"{found[kind]:.2f}" if kind in found else ""
        print(f"| {name} | {kind} | {value} | {sizes[kind] / 1024:.0f} | {times[kind]:.4f} |", flush=True)
    return unit


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| model | bits | accuracy % or perplexity | KiB | ms of a call |\n|---|---|---:|---:|---:|")
    for name in options.names or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                measure(name, options.rounds, Path(folder))
            except subprocess.CalledProcessError as error:
                print(error, (error.stderr or "")[-500:])


if __name__ == "__main__":
    main()

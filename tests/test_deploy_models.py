"""Models as C programs: compiled without a warning, run without Python, compared with eager; damaged weights are refused, never read."""

import subprocess

import numpy as np
import pytest
from deployed import SANITIZE, arrays_of, compiled, compiler, process, ran, sanitizers, traced

import gradlab as gl
from gradlab import nn
from gradlab.cli.entry import main
from gradlab.models import GPT, DigitsCNN, DigitsMLP, GPTConfig, ResNet

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 12, num_layers=2, batch_first=True)
        self.gru, self.rnn, self.head = nn.GRU(12, 8, batch_first=True), nn.RNN(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        for layer in (self.lstm, self.gru, self.rnn):
            x, _ = layer(x)
        return self.head(x[:, -1])


class Convolutions(nn.Module):
    """Strides, paddings, dilations, groups, depthwise, transposed and one dimension."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 5, stride=2, padding=2)
        self.grouped = nn.Conv2d(8, 12, 3, padding=2, dilation=2, groups=4)
        self.depthwise = nn.Conv2d(12, 24, 3, padding=1, groups=12)
        self.norm = nn.BatchNorm2d(24)
        self.back = nn.ConvTranspose2d(24, 4, 3, stride=2, padding=1)
        self.line = nn.Conv1d(4, 6, 3, padding=1)

    def forward(self, x):
        f = nn.functional
        x = f.max_pool2d(f.gelu(self.first(x)), 3, stride=1, padding=1)
        x = self.back(f.silu(self.norm(self.depthwise(self.grouped(x).relu()))))
        return self.line(f.adaptive_avg_pool2d(x, (5, 7)).mean(2)).softmax(-1)


class Pictures(nn.Module):
    """What pictures whose channels come last meet: tiles that reach over the ends, channels that fill no vector, residuals, poolings."""

    def __init__(self):
        super().__init__()
        conv = nn.Conv2d
        self.first, self.wide, self.odd, self.far = (
            conv(3, 24, 3, padding=1),
            conv(24, 32, 3, padding=1),
            conv(32, 20, 3),
            conv(20, 32, 3, padding=2),
        )
        self.mix, self.less, self.grouped = (
            conv(32, 32, 1),
            conv(32, 24, 3, 2, 1, bias=False),
            conv(24, 40, 3, padding=2, dilation=2, groups=2),
        )
        self.each, self.again, self.twice = (
            conv(40, 40, 3, 2, 1, groups=40),
            conv(20, 20, 5, padding=2, groups=20),
            conv(40, 80, 3, 1, 1, groups=40),
        )
        self.point, self.shrink, self.norm = conv(80, 16, 1, 2), conv(16, 16, 2, 2), nn.BatchNorm2d(32)
        self.back = nn.ConvTranspose2d(16, 8, 2, 2)

    def forward(self, x):
        f = nn.functional
        x = self.first(x).relu()
        x = (self.norm(self.wide(x)) + f.pad(x, (0, 0, 0, 0, 4, 4))).relu()
        x = f.gelu(self.far(self.again(self.odd(x)).tanh()))
        x = f.silu(self.mix(x) + x) * f.softmax(x, 1)
        x = f.max_pool2d(x, 2) + f.avg_pool2d(x, 2) + f.max_pool2d(x, 3, 2, 1)[:, :, :8, :8] + f.avg_pool2d(x, 3, 2, 1)[:, :, :8, :8]
        y = self.grouped(self.less(x).relu())
        y = self.each(gl.cat([y[:, :8], y[:, 8:]], 1).sigmoid())
        y = self.point(self.twice(f.interpolate(y, scale_factor=2, mode="nearest")))
        return gl.cat([self.back(self.shrink(y)).softmax(1).flatten(1), y.amax((2, 3)), x.mean((2, 3))], 1)


def batch_norms_seen(model):
    """Batch norms as after training, so that folding them has something to do."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(gl.randn(module.num_features) * 0.2)
            module.running_var.copy_(gl.rand(module.num_features) + 0.5)
    return model


MODELS = {
    "mlp": lambda: (DigitsMLP(hidden=32), [gl.randn(3, 1, 8, 8)]),
    "cnn": lambda: (batch_norms_seen(DigitsCNN()), [gl.randn(2, 1, 8, 8)]),
    "lstm": lambda: (Recurrent(), [gl.randn(3, 4, 5)]),
    "gpt": lambda: (GPT(GPTConfig(vocab_size=30, block_size=70, n_layer=2, n_head=4, n_embd=32)), [gl.randint(0, 30, (2, 70))]),
    "resnet": lambda: (batch_norms_seen(ResNet(1)), [gl.randn(2, 3, 16, 16)]),
    "pictures": lambda: (batch_norms_seen(Pictures()), [gl.randn(3, 3, 16, 17)]),
    "convolutions": lambda: (batch_norms_seen(Convolutions()), [gl.randn(2, 3, 13, 15)]),
}


@pytest.fixture(scope="module", params=MODELS)
def deployed(request, tmp_path_factory):
    """A model built and compiled with the address and undefined behaviour sanitizers, where there are any."""
    gl.manual_seed(3)
    with gl.no_grad():
        model, example = MODELS[request.param]()
    program, expected = traced(model, *example)
    folder = tmp_path_factory.mktemp(request.param)
    built = gl.deploy.build(program, folder, name=request.param)
    return built, compiled(built, "-O1", "-fno-math-errno", *(SANITIZE if sanitizers() else ())), example, expected.numpy()


def test_a_model_gives_what_eager_gives(deployed):
    built, program, example, expected = deployed
    (found,) = ran(program, built, example)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() <= 1e-5 * scale
    assert 0 < built.arena <= built.unshared


def test_damaged_weights_end_in_a_message(deployed):
    built, program, example, _ = deployed
    whole = built.weights.read_bytes()
    rng = np.random.default_rng(5)
    damaged = {"cut": whole[:-64], "empty": b"", "short": whole[:40], "longer": whole + b"x", "header": whole[:64]}
    # every byte of header and table that is read, and some of the arrays'
    places = [0, 8, 12, 16, 24, 28, 32, 40, 64, 64 + 88, 64 + 92, 64 + 96, 64 + 160, 64 + 168, 64 + 176, *rng.integers(64, len(whole), 3)]
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(8))
        damaged[f"byte {place}"] = bytes(flipped)
    inputs = arrays_of(built, example)
    path = built.source.with_name("damaged.weights")
    silent = 0
    for what, content in damaged.items():
        path.write_bytes(content)
        done = process(program, built, *inputs, "damaged.npy", weights=path)
        assert done.returncode in (0, 1) and "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, (what, done.stderr)
        if done.returncode == 0:  # only a byte that fills a gap between arrays means nothing
            silent += 1
            assert what.startswith("byte") and int(what.split()[1]) >= 64, what
        else:
            assert "weights" in done.stderr, what
        assert done.returncode == 1 or silent <= 3


def test_inputs_are_checked(deployed):
    built, program, example, _ = deployed
    (good,) = arrays_of(built, example)
    array = np.load(good)
    bad = {
        "shape": np.repeat(array, 2, 0), "dtype": array.astype(np.float64), "order": np.asfortranarray(array),
        "bytes": array.astype(array.dtype.newbyteorder(">")),
    }  # fmt: skip
    path = built.source.with_name("bad.npy")
    for what, content in bad.items():
        np.save(path, content)
        done = process(program, built, path, "out.npy")
        assert done.returncode == 1 and "bad.npy" in done.stderr, (what, done.stderr)
    for size in (0, 5, 11, 60, good.stat().st_size - 1):
        path.write_bytes(good.read_bytes()[:size])
        assert process(program, built, path, "out.npy").returncode == 1
    assert process(program, built, "missing.npy", "out.npy").returncode == 1
    assert process(program, built).returncode == 2


def test_an_index_out_of_range_ends_the_run(tmp_path):
    table = nn.Embedding(7, 4)
    program, _ = traced(table, gl.tensor([1, 2]))
    built = gl.deploy.build(program, tmp_path, name="table")
    runner = compiled(built, "-O0")
    for wrong in (7, -1, 2**62):
        np.save(tmp_path / "at.npy", np.array([1, wrong]))
        done = process(runner, built, "at.npy", "out.npy")
        assert done.returncode == 1 and "index is out of range" in done.stderr


USER = """
#include "pair.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  pair *a = NULL, *b = NULL, *c = NULL;
  float x[6] = {1, 2, 3, 4, 5, 6}, y[2], z[2];
  static unsigned char bytes[1 << 16];
  if (pair_open(&a, "pair.weights") || pair_open(&b, "pair.weights")) return 1;
  if (pair_run(a, x, y) || pair_run(b, x, z) || y[0] != z[0] || y[1] != z[1]) return 2;
  if (pair_run(NULL, x, y) != PAIR_NULL || pair_run(a, NULL, y) != PAIR_NULL) return 3;
  FILE *file = fopen("pair.weights", "rb");
  const size_t size = fread(bytes + 1, 1, sizeof bytes - 1, file);
  fclose(file);
  if (pair_open_memory(&c, bytes + 1, size) || pair_run(c, x, z) || y[0] != z[0]) return 4;
  pair_close(a); pair_close(b); pair_close(c); pair_close(NULL);
  if (pair_open(&c, "missing.weights") != PAIR_FILE || c != NULL) return 5;
  if (pair_open_memory(&c, bytes, 10) != PAIR_FORMAT || c != NULL) return 6;
  printf("%a %a\\n", (double)y[0], (double)y[1]);
  return 0;
}
"""


def test_the_functions_from_a_program_of_ones_own(tmp_path):
    layer = nn.Linear(3, 1)
    x = gl.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    program, expected = traced(layer, x)
    built = gl.deploy.build(program, tmp_path, name="pair")
    (tmp_path / "user.c").write_text(USER)
    command = [*compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "user.c", str(built.source), "-lm", "-o", "user"]
    subprocess.run(command, check=True, cwd=tmp_path)
    done = subprocess.run(["./user"], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert np.allclose([float.fromhex(t) for t in done.stdout.split()], expected.numpy().ravel(), rtol=1e-5)


def test_the_command_builds_from_a_file(tmp_path, capsys):
    program, expected = traced(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), gl.ones(2, 4))
    program.save(tmp_path / "net.glp")
    assert main(["build", str(tmp_path / "net.glp")]) == 0
    assert "net.weights" in capsys.readouterr().out
    assert main(["build", str(tmp_path / "missing.glp")]) == 2
    built = gl.deploy.build(tmp_path / "net.glp", tmp_path / "other")
    (found,) = ran(compiled(built, "-O1"), built, [gl.ones(2, 4)])
    assert np.allclose(found, expected.numpy(), rtol=1e-5)


def test_the_command_says_what_is_wrong_in_the_shells_words(tmp_path, capsys):
    """Also a number for a size that the program does not have, which was ignored."""
    gl.jit.trace(gl.relu, gl.ones(2, 3), dynamic={0: {0: "batch"}}).save(tmp_path / "net.glp")
    for options, message in (
        ([], "--size batch=1"),
        (["--size", "batch=2", "--size", "time=3"], "no unknown size time; it has batch"),
        (["--size", "batch=2", "--name", "int"], "--name model"),
    ):
        assert main(["build", str(tmp_path / "net.glp"), *options]) == 1
        told = capsys.readouterr().err
        assert message in told
        assert "build: build" not in told


def test_results_that_are_arguments_buffers_or_the_same_value(tmp_path):
    kept = gl.tensor([1.0, 2.0])
    program = gl.jit.trace(lambda x: (x, kept, x * 2, x, kept[1:]), gl.ones(2))
    built = gl.deploy.build(program, tmp_path, name="net")
    found = ran(compiled(built, "-O1"), built, [gl.tensor([3.0, 4.0])])
    assert [f.tolist() for f in found] == [[3, 4], [1, 2], [6, 8], [3, 4], [2]]

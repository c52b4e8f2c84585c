"""Programs compiled for other machines: run under emulators and in Node where those are there, compared with eager."""

import importlib.util
import shutil
import subprocess

import numpy as np
import pytest
from deployed import arrays_of, traced

import gradlab as gl
from gradlab import nn
from gradlab.cli.entry import main
from gradlab.cli.options import MACHINES
from gradlab.deploy import TARGETS, Refused, TargetError, targets
from gradlab.models import DigitsCNN

zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="the package ziglang is not installed")
BEGINNINGS = {  # of the files of each system
    "x86_64-linux": b"\x7fELF\x02", "aarch64-linux": b"\x7fELF\x02", "armv7-linux": b"\x7fELF\x01", "x86_64-windows": b"MZ",
    "aarch64-macos": b"\xcf\xfa\xed\xfe", "wasm32": b"\0asm",
}  # fmt: skip
RUNS = {  # what runs them here, where it is there; Windows and macOS have nothing
    "x86_64-linux": ("env",), "aarch64-linux": ("qemu-aarch64-static",), "armv7-linux": ("qemu-arm-static",), "wasm32": ("node",),
}  # fmt: skip


def test_the_command_knows_the_targets():
    assert tuple(TARGETS) == MACHINES


class Several(nn.Module):
    """Products, convolutions, attention, norms, integers, half types and doubles."""

    def __init__(self):
        super().__init__()
        self.cnn, self.attention = DigitsCNN(), nn.MultiheadAttention(10, 2, batch_first=True)
        self.table, self.norm, self.rnn = nn.Embedding(7, 10), nn.LayerNorm(10), nn.GRU(10, 5, batch_first=True)

    def forward(self, x, at):
        rows = self.cnn(x)
        mixed, _ = self.attention(rows[None], self.table(at)[None], self.table(at)[None], need_weights=False)
        sequence, _ = self.rnn(self.norm(mixed + rows.half().float()))
        return sequence.softmax(-1), (sequence.double().sum(-1) * 2).erf(), at // 2, sequence.argmax(-1), (sequence > 0)


@pytest.mark.slow
@zig
@pytest.mark.parametrize("target", TARGETS)
def test_a_program_of_each_target_gives_what_eager_gives(target, tmp_path):
    gl.manual_seed(1)
    inputs = gl.randn(3, 1, 8, 8), gl.tensor([1, 6, 0])
    program, expected = traced(Several(), *inputs)
    built = gl.deploy.build(program, tmp_path, name="several", target=target)
    assert built.program.read_bytes().startswith(BEGINNINGS[target])
    assert str(built.program) in str(built)
    if target not in RUNS or shutil.which(RUNS[target][0]) is None:
        pytest.skip(f"nothing here runs {target}")
    file = built.program.with_suffix(".mjs") if target == "wasm32" else built.program
    outs = [tmp_path / f"out{i}.npy" for i in range(len(expected))]

    def ran(weights, *arguments):
        return subprocess.run([*RUNS[target], file, weights, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)

    files = arrays_of(built, inputs)
    done = ran(built.weights, *files, *outs, "--time", "2")
    assert done.returncode == 0 and "ms" in done.stdout, done.stderr
    for path, wanted in zip(outs, expected, strict=True):
        found = np.load(path)
        assert found.dtype == wanted.numpy().dtype and found.shape == tuple(wanted.shape)
        assert np.allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-5)
    content = bytearray(built.weights.read_bytes())
    for damaged in (content[:-64], b"", bytes([*content[:-70], content[-70] ^ 4, *content[-69:]]), b"x" * 100):
        (tmp_path / "damaged.weights").write_bytes(damaged)
        done = ran("damaged.weights", *files, *outs)
        assert done.returncode == 1 and "weights file" in done.stderr, done.stderr
    np.save(tmp_path / "wrong.npy", np.zeros((3, 1, 8, 7), np.float32))
    done = ran(built.weights, "wrong.npy", files[1], *outs)
    assert done.returncode == 1 and "wrong.npy has another shape" in done.stderr
    np.save(tmp_path / "far.npy", np.array([1, 7, 0]))
    done = ran(built.weights, files[0], "far.npy", *outs)
    assert done.returncode == 1 and "an index is out of range" in done.stderr
    assert ran(built.weights).returncode == 2


@pytest.mark.slow
@zig
@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_a_module_needs_nothing_from_outside_and_says_what_is_wrong(tmp_path):
    program, expected = traced(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), gl.ones(2, 3))
    gl.deploy.build(program, tmp_path, name="net", target="wasm32")
    (tmp_path / "use.mjs").write_text("""
import { open, inputs } from "./net.mjs";
import { readFileSync } from "node:fs";
const wasm = readFileSync("net.wasm"), weights = readFileSync("net.weights");
console.log(WebAssembly.Module.imports(new WebAssembly.Module(wasm)).length, inputs[0].name, inputs[0].shape.join());
const a = await open(wasm, weights);
const b = await open(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.length), new Uint8Array(weights));
const [y] = a.run(new Float32Array(6).fill(1)), [z] = b.run(new Float32Array(6).fill(1));
a.close();
console.log([...y].join(), [...z].join());
for (const bad of [[], [new Float32Array(5)], [new Float64Array(6)]]) try { b.run(...bad); } catch (error) { console.log(error.message); }
try { await open(wasm, weights.subarray(0, 90)); } catch (error) { console.log(error.message); }
""")
    done = subprocess.run(["node", "use.mjs"], capture_output=True, text=True, check=False, cwd=tmp_path)
    head, values, *messages = done.stdout.splitlines()
    assert head == "0 x0 2,3", done.stderr
    for text in values.split(" "):
        assert np.allclose([float(v) for v in text.split(",")], expected.numpy().ravel(), rtol=1e-5)
    assert [m.partition(",")[0] for m in messages] == [
        "the model takes 1 arrays", "x0 has 6 elements (2", "x0 is a Float32Array (float32)",
        "the weights file has another size than this program's (cut off?)",
    ]  # fmt: skip


def test_what_cannot_be_compiled_is_said_before_anything_is_written(tmp_path, monkeypatch, capsys):
    program, _ = traced(nn.Linear(3, 2), gl.ones(2, 3))
    program.save(tmp_path / "net.glp")
    with pytest.raises(TargetError, match="'riscv' is not known; there are x86_64-linux, aarch64-linux"):
        gl.deploy.build(program, tmp_path / "out", target="riscv")
    with pytest.raises(ValueError, match="cpu= is of a target"):
        gl.deploy.build(program, tmp_path / "out", cpu="znver4")
    refused = gl.jit.trace(lambda x: gl.linalg.cholesky(x), gl.eye(3))
    with pytest.raises((Refused, TargetError), match=r"cholesky: the runner has no C for it .*test_deploy_targets.py|ziglang"):
        gl.deploy.build(refused, tmp_path / "out", target="aarch64-linux")
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TargetError, match=r"wasm32: .* pip install 'gradlab-engine\[deploy\]'"):
        gl.deploy.build(program, tmp_path / "out", target="wasm32")
    assert main(["build", str(tmp_path / "net.glp"), "--target", "aarch64-linux"]) == 1
    assert "gradlab-engine[deploy]" in capsys.readouterr().err
    assert main(["build", str(tmp_path / "net.glp"), "--cpu", "znver4"]) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["net.glp"]


@zig
def test_what_the_compiler_says_is_passed_on(tmp_path):
    program, _ = traced(nn.Linear(3, 2), gl.ones(2, 3))
    with pytest.raises(TargetError, match=r"target aarch64-linux, cpu no_such_one: the compiler says: .*no_such_one"):
        gl.deploy.build(program, tmp_path, name="net", target="aarch64-linux", cpu="no_such_one")


INTEGERS = {  # processors whose own instructions for integer products have to be in the code, by the way that integer_products.h takes
    "x86_64-linux icelake_server": "vpdpwssd", "x86_64-linux znver4": "vpdpwssd", "x86_64-linux x86_64_v4": "vpmaddwd",
    "x86_64-linux alderlake": "vpdpwssd", "x86_64-linux x86_64_v3": "vpmaddwd", "x86_64-linux baseline": "",
    "aarch64-linux generic": "smlal", "aarch64-linux neoverse_n1": "sdot", "aarch64-macos apple_m1": "sdot",
    "armv7-linux cortex_a7": "vmlal.s16", "wasm32 generic+simd128": "i32x4.dot_i16x8_s", "wasm32 generic": "",
}  # fmt: skip


def few_bits():
    """Layers of 8 and of 4 bits, and an input."""
    gl.manual_seed(0)
    layers = nn.Conv2d(3, 20, 3), nn.ReLU(), nn.Conv2d(20, 20, 3, groups=20), nn.Flatten(), nn.Linear(80, 48), nn.Linear(48, 5)
    small = gl.ao.quantization.quantize_dynamic(nn.Sequential(*layers), {nn.Linear, nn.Conv2d})
    small[5] = gl.ao.quantization.quantize_dynamic(layers[5], bits=4)
    return small, gl.randn(8, 3, 6, 6)


@pytest.mark.slow
@zig
def test_every_way_of_integer_products_compiles_without_a_warning(tmp_path):
    """By name of the processor: those that no machine here has, too."""
    small, x = few_bits()
    built = gl.deploy.build(traced(small, x)[0], tmp_path, name="small")
    for name, instruction in INTEGERS.items():
        target, cpu = name.split()
        flags = [*targets.FLAGS, "-Wall", "-Wextra", "-Werror", "-Wno-unused-command-line-argument", "-S", "-o", str(tmp_path / "small.s")]
        targets.zig(["cc", "-target", TARGETS[target].triple, f"-mcpu={cpu}", *flags, str(built.source)], name)
        assert instruction in (tmp_path / "small.s").read_text(), name


@pytest.mark.slow
@zig
@pytest.mark.parametrize("name", [name for name in INTEGERS if name.split()[0] in RUNS])
def test_few_bits_run_everywhere(name, tmp_path):
    """Sums of integers are exact; the scales of float sums come in with the last bit of a machine's arithmetic."""
    target, cpu = name.split()
    if shutil.which(RUNS[target][0]) is None or cpu in ("icelake_server", "znver4", "x86_64_v4", "alderlake"):
        pytest.skip(f"nothing here runs {name}")
    small, x = few_bits()
    program, expected = traced(small, x)
    built = gl.deploy.build(program, tmp_path, name="small", target=target, cpu=cpu)
    file = built.program.with_suffix(".mjs") if target == "wasm32" else built.program
    command = [*RUNS[target], file, built.weights, *arrays_of(built, [x]), tmp_path / "out.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert np.abs(np.load(tmp_path / "out.npy") - expected.numpy()).max() <= 1e-6 * expected.abs().max().item()

"""The page's WebAssembly beside onnxruntime-web in one browser: milliseconds of a call, one thread, and the difference of their results.

    python bench/page.py FOLDER [--rounds 5]     # FOLDER: node_modules/onnxruntime-web/dist, of `npm install onnxruntime-web`

The digits' CNN in the page that `gradlab export --web` writes, and ResNet-20 (one picture of 32×32) in a module of `--target wasm32`, each
in turn with ONNX Runtime's own; the least of rounds of 0.3 s counts. Needs ziglang, playwright and a Chromium.
"""

import argparse
import functools
import http.server
import shutil
import tempfile
import threading
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

import gradlab as gl
from gradlab import runs
from gradlab.cli.entry import main as gradlab
from gradlab.models import resnet20

CLOCK = """
const least = async (call) => {
  let calls = 1, took = 0;
  for (;; calls *= 2) {
    const start = performance.now();
    for (let i = 0; i < calls; i++) await call();
    if ((took = performance.now() - start) > 300) return took / calls;
  }
};"""
OURS = CLOCK + """
const x = Float32Array.from(given);
const model = await MODEL;
const [y] = model.run(x);
return [await least(() => model.run(x)), Array.from(y)];"""
THEIRS = CLOCK + """
const ort = await import("/ort/ort.wasm.min.mjs");
ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = "/ort/";
const session = await ort.InferenceSession.create("/NAME.onnx");
const feeds = { [session.inputNames[0]]: new ort.Tensor("float32", Float32Array.from(given), shape) };
const y = (await session.run(feeds))[session.outputNames[0]].data;
return [await least(() => session.run(feeds)), Array.from(y)];"""
IN_PAGE = 'open(bytesOf(document.getElementById("wasm").textContent), bytesOf(document.getElementById("weights").textContent))'
IN_MODULE = """(async () => {
  const { open } = await import("/NAME.mjs");
  const [wasm, weights] = await Promise.all(["/NAME.wasm", "/NAME.weights"].map(async (path) => (await fetch(path)).arrayBuffer()));
  return open(wasm, weights);
})()"""


class Handler(http.server.SimpleHTTPRequestHandler):
    def guess_type(self, path):
        kinds = {".html": "text/html", ".mjs": "text/javascript", ".wasm": "application/wasm"}
        return kinds.get(Path(path).suffix, "application/octet-stream")

    def log_message(self, *_):
        pass


def made(folder):
    """(name, the page that it is run in, how it is opened there, example, eager's result) of the models, whose files lie in the folder."""
    if gradlab(["train", "digits", "--model", "cnn", "--epochs", "1", "--out", str(folder / "run")]):
        raise SystemExit("the training failed")
    cnn = runs.load_run(folder / "run").model.eval()
    if gradlab(["export", str(folder / "run"), "--web", str(folder / "cnn.html")]):
        raise SystemExit("there is no page")
    residual = resnet20().eval()
    (folder / "resnet.html").write_text("<!doctype html><title>modules</title>")
    found = []
    for name, model, shape in (("cnn", cnn, (1, 1, 8, 8)), ("resnet", residual, (1, 3, 32, 32))):
        x = gl.tensor(np.random.default_rng(0).random(shape, np.float32))
        gl.onnx.export(model, (x,), folder / f"{name}.onnx")
        with gl.no_grad():
            expected = model(x).numpy()
            if name == "resnet":
                gl.deploy.build(gl.jit.trace(model, (x,)), folder, name=name, target="wasm32")
        found.append((name, IN_PAGE if name == "cnn" else IN_MODULE.replace("NAME", name), x.numpy(), expected))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as play:
        folder = Path(name)
        (folder / "ort").symlink_to(options.folder.resolve())
        models = made(folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        print(f"Chromium {browser.version}")
        print("| model | gradlab's WebAssembly | onnxruntime-web | ratio | error | theirs |\n|---|---:|---:|---:|---:|---:|")
        for name, opened, x, expected in models:
            mine, other = (browser.new_page(bypass_csp=True) for _ in range(2))  # the page's policy forbids it to load anything
            mine.goto(f"http://127.0.0.1:{server.server_port}/{name}.html")
            other.goto(f"http://127.0.0.1:{server.server_port}/resnet.html")
            codes = [(mine, OURS.replace("MODEL", opened)), (other, THEIRS.replace("NAME", name))]
            times, errors = [1e9, 1e9], [0.0, 0.0]
            for _ in range(options.rounds):
                for i, (view, code) in enumerate(codes):
                    took, y = view.evaluate(f"async ([given, shape]) => {{ {code} }}", [x.ravel().tolist(), list(x.shape)])
                    times[i] = min(times[i], took)
                    errors[i] = np.abs(np.array(y) - expected.ravel()).max() / np.abs(expected).max()
            ratio = times[0] / times[1]
            print(f"| {name} | {times[0]:.3f} | {times[1]:.3f} | {ratio:.2f} | {errors[0]:.0e} | {errors[1]:.0e} |", flush=True)
        browser.close()
        server.shutdown()


if __name__ == "__main__":
    main()

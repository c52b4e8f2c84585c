"""What runs code, opens libraries, starts programs or talks to others: known place by place, and none of it while gradlab is imported."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib

import bill_of_materials

from repository import ROOT

RUNS = "code made of the user's own program, never of a file that is read"
PLACES = {  # file: (what is called there, why)
    "backends/cuda/emulator/bounds.py": ({"ctypes.CDLL"}, "the C library of the process itself"),
    "backends/cuda/emulator/guarded_memory.py": ({"ctypes.CDLL"}, "the C library of the process itself"),
    "backends/cuda/emulator/sanitizer.py": ({"ctypes.CDLL", "subprocess.run"}, "the C library; the program once more, sanitized"),
    "backends/cuda/nccl/standin.py": ({"socket.create_connection"}, "the processes of one program, where NCCL is emulated"),
    "backends/cuda/nvidia_libraries.py": ({"ctypes.CDLL"}, "NVIDIA's libraries, from installed packages or the system"),
    "backends/native/compile_jobs.py": ({"subprocess.Popen"}, "the C++ compiler"),
    "backends/native/compiler.py": ({"ctypes.PyDLL"}, "machine code that a wheel carries, its checksum looked at"),
    "backends/native/prebuilt.py": ({"ctypes.CDLL"}, "machine code that a wheel carries, its checksum looked at"),
    "backends/native/ready.py": ({"os.posix_spawn"}, "this Python, to compile kernels in the background"),
    "backends/native/seals.py": (set(), "machine code of the cache goes through `opened` here"),
    "backends/native/toolchain.py": ({"subprocess.run"}, "the C++ compiler, and addr2line"),
    "backends/openblas.py": ({"ctypes.CDLL", "ctypes.PyDLL"}, "the OpenBLAS that NumPy has loaded"),
    "cli/info.py": ({"subprocess.run"}, "nvidia-smi, where `gradlab info` is asked"),
    "cli/run.py": ({"compile", "exec"}, "`gradlab run script.py`: the script"),
    "cli/launch.py": ({"subprocess.Popen", "subprocess.run"}, "`gradlab launch`: mpiexec and the user's program"),
    "cli/ranked.py": ({"subprocess.Popen", "subprocess.call"}, "`gradlab launch`: the user's program in each process"),
    "deploy/targets.py": ({"subprocess.run"}, "the compiler of another machine's programs"),
    "distributed/objects.py": ({"pickle.loads"}, "objects of this program's own processes"),
    "fx/code.py": ({"compile", "exec"}, RUNS),
    "graph/executables/numpy/source_text.py": ({"compile", "exec"}, RUNS),
    "graph/guards/guards.py": ({"compile", "eval", "exec"}, RUNS),
    "graph/ir/memory_plan.py": ({"ctypes.CDLL"}, "the C library of the process itself"),
    "hub.py": ({"spec.loader.exec_module"}, "`hub.load` of a local folder: its hubconf.py"),
    "jit/scripting/function.py": ({"compile"}, RUNS),
    "library/custom.py": ({"eval"}, "the names of a function's parameters, which are identifiers"),
    "multiprocessing/spawn.py": ({"pickle.loads"}, "objects of this program's own processes"),
    "runs/exporting.py": ({"subprocess.run"}, "an exported C program, compiled and tried"),
    "runs/function.py": ({"spec.loader.exec_module"}, "`gradlab train file.py:function`: the file"),
    "testing/launches.py": ({"pickle.loads"}, "a file of this program's own, of another process"),
    "testing/nvrtc.py": ({"ctypes.CDLL"}, "NVIDIA's compiler, from an installed package"),
    "testing/prebuilt.py": ({"subprocess.run"}, "the compiler of wheels"),
    "utils/addresses.py": ({"build_opener"}, "the only way to the network: over TLS"),
    "utils/data/worker.py": ({"pickle.loads"}, "objects of this program's own processes"),
    "utils/serialization/hdf5.py": ({"subprocess.run"}, "this Python, to read an HDF5 file"),
}  # fmt: skip
NAMES = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}
BEGINS = ("subprocess.", "os.exec", "os.spawn", "os.posix_spawn", "pickle.load", "marshal.load", "dill.", "yaml.")
ENDS = {"CDLL", "PyDLL", "urlopen", "urlretrieve", "build_opener", "exec_module", "create_connection", "Popen", "system", "popen"}


def dangerous(tree):
    """The calls of a file that run something, open libraries or connections; methods of objects here, such as `re.compile`, are none."""
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    own |= {alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if (name in NAMES and name not in own) or name.startswith(BEGINS) or name.rpartition(".")[2] in ENDS - {"system", "popen"}:
                yield name
            if any(k.arg == "shell" and not (isinstance(k.value, ast.Constant) and k.value.value is False) for k in node.keywords):
                yield "shell="
            if any(k.arg == "allow_pickle" and not (isinstance(k.value, ast.Constant) and k.value.value is False) for k in node.keywords):
                yield "allow_pickle="


def test_what_runs_something_is_known_place_by_place():
    found = {}
    for path in sorted((ROOT / "gradlab").rglob("*.py")):
        if calls := set(dangerous(ast.parse(path.read_text(encoding="utf-8")))):
            found[path.relative_to(ROOT / "gradlab").as_posix()] = calls
    assert found == {place: calls for place, (calls, _) in PLACES.items() if calls}
    assert all(len(why) > 10 for _, why in PLACES.values())


IMPORTS = """
import importlib, json, os, pkgutil, sys
import encodings.idna, concurrent.futures, multiprocessing.util  # Python's own, which others import
seen = []
FORBIDDEN = ("socket.", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "urllib.Request", "ftplib.",
             "http.client.", "smtplib.", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "shutil.", "os.putenv")
def watch(event, arguments):
    if event.startswith(FORBIDDEN) and "__pycache__" not in str(arguments):
        seen.append(f"{event} {arguments!r:.100}")
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+") and "__pycache__" not in str(arguments[0]):
        seen.append(f"open {arguments!r:.100}")
for needed in sys.argv[1:]:
    try: importlib.import_module(needed)
    except ImportError: pass
sys.addaudithook(watch)
import gradlab
count = 0
for module in pkgutil.walk_packages(gradlab.__path__, "gradlab."):
    if not module.name.endswith("__main__") and ".pytorch" not in module.name and module.name != "gradlab.as_torch":
        try:
            importlib.import_module(module.name)
            count += 1
        except ImportError as error:
            if "gradlab" in str(error): raise
        except RuntimeError as error:  # a GPU that is not there
            seen.extend([] if "CUDA" in str(error) or "cuda" in str(error) else [f"{module.name}: {error}"])
print(json.dumps([count, seen]))
"""


def test_importing_starts_nothing_and_asks_nobody(tmp_path):
    """All rooms, in a process of its own that notes what happens: no program, no connection, no file written."""
    others = ["numpy", "ml_dtypes", "safetensors.numpy", "tqdm.auto", "onnx", "onnxruntime", "PIL.Image", "sklearn", "scipy.fft", "pandas"]
    others += ["IPython", "matplotlib"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "GRADLAB_CACHE": str(tmp_path / "cache")}
    program = [sys.executable, "-B", "-W", "ignore", "-c", IMPORTS, *others]  # byte code that is kept is Python's own
    done = subprocess.run(program, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    count, seen = json.loads(done.stdout.splitlines()[-1])
    assert count > 700 and seen == []
    assert not [path for path in tmp_path.rglob("*") if "gradlab" in path.name or path.name == "cache"]  # others keep files of their own


def requirements():
    return [part for part in re.split(r"(?<!\\)\n", (ROOT / ".ci" / "requirements.txt").read_text()) if part and not part.startswith("#")]


def test_what_ci_installs_is_pinned_with_hashes():
    found = {}
    for part in requirements():
        name = re.match(r"([A-Za-z0-9._-]+)==[^ ;]+", part)
        assert name and part.count("--hash=sha256:") >= 1, part[:80]
        found[name[1].lower().replace("_", "-")] = part
    assert not re.search(r"https?://|--index|--find-links|--trusted", "".join(requirements()))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"--extra (\w+)", (ROOT / ".ci" / "requirements.txt").read_text().partition("\n\n")[0].split("==")[0])
    assert set(extras) == set(re.search(r"--editable '\.\[([\w,]+)\]'", (ROOT / ".ci" / "run").read_text())[1].split(","))
    for wanted in [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]:
        assert re.match(r"[A-Za-z0-9._-]+", wanted)[0].lower().replace("_", "-") in found, wanted


def test_licences_of_everything_that_is_installed_with_it_are_listed():
    listed = (ROOT / "docs" / "dependencies.md").read_text().partition("## Licences")[2]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    for wanted in [*project["dependencies"], *(one for extra in extras for one in extra)]:
        name = re.match(r"[A-Za-z0-9._-]+", wanted)[0]
        assert re.search(rf"\| [^|]*\b{re.escape(name)}\b", listed, re.IGNORECASE), name


def test_security_says_what_is_trusted():
    text = (ROOT / "SECURITY.md").read_text()
    for word in ("weights_only=False", "GRADLAB_CACHE", "gradlab run", "trusted=True", "hubconf.py", "ONNX", ".glp", "Report"):
        assert word in text, word


def test_the_bill_of_materials_is_whole():
    text = bill_of_materials.REQUIREMENTS.read_text(encoding="utf-8")
    parts = bill_of_materials.bill()["components"]
    assert len(parts) == len(re.findall(r"^[\w.-]+.*==", text, re.MULTILINE)) > 100
    assert sum(len(part["hashes"]) for part in parts) == text.count("--hash=sha256:") and all(part["hashes"] for part in parts)
    numpy = next(part for part in parts if part["name"] == "numpy")
    assert numpy["purl"] == f"pkg:pypi/numpy@{numpy['version']}" and "BSD" in numpy["licenses"][0]["license"]["name"]

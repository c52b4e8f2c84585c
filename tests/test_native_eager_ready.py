"""Which kernels eager code uses: those that lay ready when the process began. Without a compiler, before they are compiled, in children."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from native_eager import kernels, needs_compiler

from gradlab.backends.native import compiler, ready, seals


def run(text, **variables):
    """What a program prints as JSON, in a process of its own."""
    environment = {**os.environ, "GRADLAB_NATIVE": "1", **variables}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LARGE = """
    import json, gradlab as gl
    x = gl.linspace(-3, 3, 200_000)
    y = gl.nn.functional.gelu(x)
    from gradlab.backends.native import eager, ready
    print(json.dumps([len(ready.state().libraries), sum(p is not None for p in eager.plans.values()), float(y.sum())]))
"""


def test_without_a_compiler_numpy_computes(tmp_path):
    found = run(LARGE, GRADLAB_COMPILER="none", GRADLAB_CACHE=str(tmp_path))
    assert found[:2] == [0, 0] and found[2] > 0
    assert not any(p.suffix == ".json" for p in tmp_path.rglob("*"))


def test_sanitized_kernels_have_a_list_of_their_own(monkeypatch):
    """A plain process cannot open them, and a sanitized one would not look at the others' arrays."""
    lists = set()
    for sanitize in ("", "address"):
        monkeypatch.setenv("GRADLAB_SANITIZE", sanitize)
        lists.add(ready.list_file())
    assert len(lists) == 2


def test_an_update_of_a_row_or_of_a_lowering_has_a_list_of_its_own(monkeypatch, tmp_path):
    """Else an older list would be taken as whole, and rows whose texts are new would run in NumPy until somebody ran `gradlab warm`."""
    sources = {str(path) for path in ready._sources()}
    writers = [name for name in sys.modules if name.startswith(("gradlab.ops", "gradlab.backends.native", "gradlab.kernel"))]
    assert len(writers) > 100 and not [name for name in writers if sys.modules[name].__file__ not in sources]
    row, lists = tmp_path / "row.py", []
    monkeypatch.setattr(ready, "_sources", lambda: [row])
    for text in ("x + 1", "x + 1.0"):
        row.write_text(text)
        lists.append(ready.list_file())
    assert lists[0] != lists[1] and ready.list_file() == lists[1]


@needs_compiler
def test_switched_off_by_a_variable():
    with kernels():
        pass
    assert run(LARGE, GRADLAB_NATIVE="0")[1] == 0


@needs_compiler
def test_kernels_that_lie_ready_are_used():
    with kernels():
        pass
    assert run(LARGE)[1] > 0


@needs_compiler
def test_nobody_waits_for_the_compiler_and_a_process_never_changes_its_mind(tmp_path, monkeypatch):
    """The compiler begins in a process of its own (here a stand-in), NumPy computes, and a list that appears later is not looked at."""
    monkeypatch.setenv("GRADLAB_NATIVE", "1")
    monkeypatch.setenv("GRADLAB_CACHE", str(tmp_path))
    begun = []
    monkeypatch.setattr(ready, "begin_in_background", lambda: begun.append(1))
    ready.state.cache_clear()
    try:
        assert not ready.state().libraries and begun == [1]
        pool = compiler.built("", "thread_pool.cpp")
        seals.write(ready.list_file(), {"libraries": {"gradlab_row": pool.name}})
        assert not ready.state().libraries and ready.looked_up().libraries
        ready.state.cache_clear()
        assert ready.state().libraries and begun == [1]
        seals.write(ready.list_file(), {"error": "no"})
        assert "could not be compiled" in ready.looked_up().why and not ready.looked_up().begin
    finally:
        ready.state.cache_clear()


@needs_compiler
@pytest.mark.slow
def test_background_compilation(tmp_path):
    """The process that compiles outlives the one that wanted kernels, and the next one has them."""
    import time

    begun = time.monotonic()
    assert run(LARGE, GRADLAB_CACHE=str(tmp_path))[:2] == [0, 0]
    assert time.monotonic() - begun < 60
    while not list((tmp_path / "programs").glob("eager-*.json")):
        assert time.monotonic() - begun < 900
        time.sleep(0.5)
    assert run(LARGE, GRADLAB_CACHE=str(tmp_path))[1] > 0


@needs_compiler
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_computes_too():
    with kernels():
        pass
    found = run("""
        import json, os, warnings, gradlab as gl
        warnings.simplefilter("ignore")
        x = gl.linspace(-3, 3, 200_000)
        want = float((gl.nn.functional.gelu(x) @ x))
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, repr(float((gl.nn.functional.gelu(x) @ x))).encode())
            os._exit(0)
        os.waitpid(child, 0)
        print(json.dumps([want, float(os.read(read, 100))]))
    """)
    assert found[0] == found[1]


@needs_compiler
def test_threads_may_run_one_row_at_once():
    with kernels():
        pass
    assert run("""
        import json, threading, gradlab as gl
        x = gl.linspace(-3, 3, 300_000)
        want, wrong = gl.nn.functional.softmax(x, 0), []
        def work():
            for _ in range(20):
                if not gl.equal(gl.nn.functional.softmax(x, 0), want):
                    wrong.append(1)
        crew = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in crew]
        [t.join() for t in crew]
        print(json.dumps(len(wrong)))
    """) == 0


@needs_compiler
def test_numbers_of_threads_do_not_change_results():
    with kernels():
        pass
    text = """
        import json, gradlab as gl
        F = gl.nn.functional
        gl.manual_seed(0)
        x, w = gl.randn(8, 16, 40, 40, requires_grad=True), gl.randn(32, 16, 3, 3, requires_grad=True)
        y = F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2)
        loss = F.cross_entropy(y.flatten(1), gl.arange(8)) + y.sum() + F.layer_norm(y, y.shape[2:]).square().mean()
        loss.backward()
        print(json.dumps([t.double().sum().item() for t in (loss, x.grad, w.grad, x.grad.abs(), w.grad.abs())]))
    """
    assert run(text, GRADLAB_NUM_THREADS="1") == run(text, GRADLAB_NUM_THREADS="2")


RUN = """
    import json, gradlab as gl
    from gradlab.backends.native import eager, ready
    gl.manual_seed(0)
    model = gl.nn.Sequential(gl.nn.Linear(300, 400), gl.nn.GELU(), gl.nn.Linear(400, 300))
    data = [(gl.randn(200, 300), gl.randn(200, 300)) for _ in range(2)]
    update = gl.optim.SGD(model.parameters(), lr=0.1)
    gl.train.fit(model, data, gl.nn.functional.mse_loss, update, epochs=EPOCHS, resume=RESUME, compile=False,
                 callbacks=[gl.train.Checkpoint(FOLDER, monitor=None)])
    print(json.dumps([ready.in_use(), len(eager.plans), [float(p.double().sum()) for p in model.parameters()]]))
"""


@needs_compiler
@pytest.mark.parametrize("begun", ["0", "1"])
def test_a_run_goes_on_with_what_it_began_with(tmp_path, begun):
    """Begun before the kernels lay ready, it ends in the bits of a run that was not interrupted, though they are ready by then."""
    with kernels():
        pass
    whole, part = (RUN.replace("FOLDER", repr(str(tmp_path / name))) for name in ("whole", "part"))
    wanted = run(whole.replace("RESUME", "None").replace("EPOCHS", "4"), GRADLAB_NATIVE=begun)
    run(part.replace("RESUME", "None").replace("EPOCHS", "2"), GRADLAB_NATIVE=begun)
    again = part.replace("RESUME", f"gl.train.read_checkpoint({str(tmp_path / 'part')!r})").replace("EPOCHS", "4")
    found = run(again, GRADLAB_NATIVE="1")
    assert (found[0], found[2]) == (wanted[0], wanted[2])
    assert (found[0] == "numpy") == (begun == "0")

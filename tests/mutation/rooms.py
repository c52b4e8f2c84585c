"""The rooms that mutants are planted in, and which tests are a file's own."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from repository import ROOT, project_files

TESTS = ROOT / "tests"


class Room(NamedTuple):
    """Files by patterns, and the tests of all of them. What is a row's is asked for the file's rows alone. whole: with what only `--full`
    runs."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    by_row: tuple[str, ...] = ()
    whole: bool = False


def tests(words: str) -> tuple[str, ...]:
    """Patterns of test files: `kinds/stale` is kinds/test_stale.py."""
    return tuple("/".join((*folder, f"test_{name}.py")) for *folder, name in (word.split("/") for word in words.split()))


ROWS = ("test_ops.py", "kinds/test_slopes_at_edges.py", "test_expressions.py", "test_trace.py", "kinds/test_beyond_one_block.py")
CUDA_ROWS = ("test_cuda_rows.py", "kinds/test_beyond_one_block.py")
ROOMS = {
    "rows": Room(("gradlab/ops/*.py",), tests("""
            scan conv pool norm loss activation math special numerics random sorting layout indexing memory_views
            complex linalg fourier attention sequences quantization vision native_windows creation ctc statistics rnn optim tables sparse
            samples_uneven kinds/close_values kinds/views_of_memory kinds/ways_by_size kinds/types_of_rows
            kinds/hard_numbers kinds/sum_accuracy
        """), ROWS, whole=True),
    "rules": Room(
        ("gradlab/ops/batching/*.py", "gradlab/onnx/rows/*.py"), tests("vmap vmap_rows onnx_export_rows onnx_export kinds/onnx_random"),
        whole=True,
    ),
    "engine": Room(
        ("gradlab/autograd/*.py", "gradlab/op.py", "gradlab/dispatch.py", "gradlab/spec.py"),
        tests("""
            autograd hooks hook_order inplace inplace_shapes inplace_without_graph modes function* func func_orders forward_ad gradcheck
            memory memory_views overrides tensor promotion errors indexing layout new_row complex amp amp_gradients profiler checkpoint
            sparse vmap trace_training compile kinds/meta native_eager recall node_counts kinds/library_writes kinds/contexts_end
            kinds/gradients_read kinds/numbers_beside_half_types kinds/stale_views kinds/code_in_backward kinds/refusals kinds/half_units
            kinds/result_layouts graph_api private_names amp_cuda kinds/half_sums kinds/ways_to_a_result kinds/contexts_off
            kinds/types_of_rows kinds/kept_values kinds/gradients_own_memory
        """),
    ),
    "passes": Room(
        ("gradlab/graph/passes/*.py", "gradlab/graph/ir/*.py", "gradlab/graph/calls/*.py", "gradlab/graph/staging/*.py"),
        tests("""
            passes compile compile_aliases compile_assembling compile_callables compile_calls compile_effects compile_endings
            compile_epilogues compile_families compile_guards compile_halves compile_holding compile_memory compile_numpy compile_places
            compile_statistics compile_stats compile_stranger compile_twice trace_training control_flow* graph_* residual* session*
            unknown_sizes texts kinds/written_state pass_join_messages compile_channels_last compile_conv compile_mega residual_layers
            overlap_cats kinds/trace_layouts kinds/programs_after_passes kinds/shared_arguments amp_compile
        """),
    ),
    "guards": Room(
        ("gradlab/graph/guards/*.py",),
        tests("""
            compile_guards kinds/stale kinds/stale_not compile compile_calls compile_stranger
            compile_effects compile_twice compile_callables guard_conditions probed_layouts kinds/gradients_read
            kinds/argument_structures
        """),
    ),
    "training": Room(
        ("gradlab/optim/*.py", "gradlab/optim/lr_scheduler/*.py", "gradlab/utils/data/*.py"),
        tests("""
            optim* lr_scheduler lbfgs data data_types dataloader_workers prefetch kinds/pairs_of_options kinds/schedulers_resumed
            kinds/optimizer_switches kinds/shared_arguments kinds/defaults kinds/training_options
            advice sparse_embedding
        """),
    ),
    "tensor": Room(
        ("gradlab/tensor/*.py", "gradlab/sparse/*.py", "gradlab/func/*.py"),
        tests("""
            tensor inplace* indexing layout promotion creation memory_views storage printing statistics special products linalg math sorting
            random search tables errors wrong_arguments foreach older_habits interop signatures vmap func* forward_ad sparse* scalar_math
            quantization fourier complex activation kinds/*
        """),
    ),
    "modules": Room(
        ("gradlab/nn/*.py", "gradlab/nn/modules/*.py", "gradlab/nn/functional/*.py", "gradlab/nn/utils/*.py", "gradlab/amp/*.py"),
        tests("""
            nn module norm loss pool conv rnn attention flex_attention activation vision ctc init hooks parametrize prune weights
            sparse_embedding func_modules torch_modules errors wrong_arguments sequences fast_linear amp* scaling
            mixed_precision products residual_layers kinds/*
        """),
    ),
    "files": Room(
        ("gradlab/utils/serialization/*.py", "gradlab/utils/atomic.py", "gradlab/utils/checkpoint.py", "gradlab/interchange/*.py"),
        tests("""
            serialization checkpoint* checksums load_formats evil_loaders torch_files* model_files weights interchange_matrix hub interop
            other_libraries data_of_others complex_files private_names kinds/numpy_functions kinds/numpy_numbers kinds/pickled
        """),
    ),
    "distributed": Room(
        ("gradlab/distributed/*.py", "gradlab/nn/parallel/*.py"), tests("distributed* mpi nccl constraints")
    ),
    "native": Room(
        ("kernels/cpu/*", "gradlab/backends/native/*.py", "gradlab/graph/executables/native/*.py"),
        tests("""
            native_* kinds/beyond_one_block red_zones products compile_epilogues* compile_mega compile_conv compile_memory
            compile_families compile_channels_last compile_halves compile_statistics execute compile_rows
        """), whole=True,
    ),
    "cuda": Room(
        ("kernels/cuda/*", "gradlab/backends/cuda/launch/*.py", *(f"gradlab/backends/cuda/{n}.py" for n in ("reduction", "elementwise"))),
        tests("cuda_rows_fast cuda_pieces cuda_backend"),
        CUDA_ROWS, whole=True,
    ),
}  # fmt: skip


def files_of(room: str) -> list[str]:
    """The files of a room."""
    code = (f for f in project_files("gradlab", "kernels") if f.endswith((".py", ".cpp", ".h", ".cu", ".cuh")))
    return [f for f in code if Path(f).name != "__init__.py" and any(Path(f).match(p) for p in ROOMS[room].files)]


def expanded(patterns: tuple[str, ...]) -> list[str]:
    """Test files by pattern, those that are there."""
    found = [f"tests/{p.relative_to(TESTS).as_posix()}" for pattern in patterns for p in sorted(TESTS.glob(pattern))]
    return list(dict.fromkeys(found))


@cache
def rows_of(file: str) -> frozenset[str]:
    """The rows that a file is about: a family's, or those whose kernel stands in the file or in one that includes it."""
    from gradlab import ops

    from samples import SAMPLES

    path = Path(file)
    if file.startswith("gradlab/ops/"):
        family = path.stem.removesuffix("_cpu").removesuffix("_tables")
        rows = next((vars(f).values() for f in ops.FAMILIES if f.__name__.rpartition(".")[2] == family), ())
        return frozenset(row.name for row in rows if getattr(row, "name", None) in SAMPLES and ops.ROWS[row.name] is row)
    if path.parent.name == "launch":
        from gradlab.backends.cuda import launch

        rules = next((f for f in launch.FAMILIES if f.__name__.rpartition(".")[2] == path.stem), None)
        keys, names = getattr(rules, "RULES", {}), getattr(rules, "BY_ROW", {})
        kernels = {n: (getattr(row.cuda, "file", None), getattr(row.cuda, "name", None)) for n, row in ops.ROWS.items()}
        return frozenset(n for n, kernel in kernels.items() if n in names or kernel in keys)
    including, grown = {path.name}, True
    while grown:
        texts = {p.name: p.read_text("utf-8") for p in (ROOT / "kernels/cuda").iterdir()}
        more = {name for name, text in texts.items() if any(f'#include "{part}"' in text for part in including)}
        grown, including = bool(more - including), including | more
    return frozenset(name for name, row in ops.ROWS.items() if getattr(row.cuda, "file", None) in including)


def relatives(file: str) -> list[str]:
    """Tests that carry a word of the file's name: `winograd.cpp` has `test_native_winograd.py`."""
    words = {w.removesuffix("s") for w in re.split(r"[_.]", Path(file).stem)} - {"cpu", "fast", "tool"}
    return [f"tests/{p.name}" for p in sorted(TESTS.glob("test_*.py")) if words & {w.removesuffix("s") for w in p.stem.split("_")[1:]}]


def tests_of(room: str, file: str) -> list[list[str]]:
    """Arguments of pytest, run after run: what is nearest to the file first, then the rest of its room."""
    found, rows = ROOMS[room], rows_of(file) if ROOMS[room].by_row else frozenset()
    filtered = expanded(found.by_row) if rows else []
    own = relatives(file) or ([] if rows else expanded(found.by_row[:1]))
    if room in ("cuda", "native"):
        own = [f for f in own if f"_{room}_" in f or (room == "native" and "_compile_" in f)]
    rest = expanded(found.tests)
    first = [f for f in rest if f in own]
    runs = [["--only-rows", ",".join(sorted(rows)), *filtered]] if filtered else []
    if room in ("rows", "cuda"):
        runs += [own] if own else []
    runs.append([*first, *[f for f in rest if f not in first and f not in own]])
    return [run for run in runs if run]

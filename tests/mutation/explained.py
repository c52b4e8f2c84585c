"""Mutants that no test can find, or that none is to find, with the reason: by file, line before and line after (`Mutant.key`)."""

EXPLAINED: dict[str, str] = {
    "kernels/cpu/cross_entropy.cpp"
    " | if (!there && t != v[2]) *(int64_t*)q[4] = 1;"
    " | if (!there || t != v[2]) *(int64_t*)q[4] = 1;": "the row's own function looks once more, and finds no wrong target",
    "kernels/cpu/sequences.cpp"
    " | if (before * parts < total * part) first = middle + 1;"
    " | if (before * parts <= total * part) first = middle + 1;": "where the work is divided",
    "kernels/cpu/direct_weight_gradient.h"
    " | for (int j = 0; j < L; ++j) store(row + j * plane + at, found[j]);"
    " | for (int j = 0; j <= L; ++j) store(row + j * plane + at, found[j]);": "a plane more of scratch, for the sanitizer",
    "gradlab/optim/line_search.py"
    " | if now.loss > start.loss + ARMIJO * t * start.slope or now.loss >= ends[low].loss:"
    " | if now.loss >= start.loss + ARMIJO * t * start.slope or now.loss >= ends[low].loss:": "equal to the last bit",
    "gradlab/optim/optimizer.py"
    ' | what = "with names" if any(named) else "without names"'
    ' | what = "with names" if all(named) else "without names"': "a mixture was refused before",
    "gradlab/ops/bessel.py"
    " | small = a <= NEAR"
    " | small = a < NEAR": "both formulas hold on the bound",
    "gradlab/ops/pool.py"
    " | overlap = any(s < d * (k - 1) + 1 for k, s, d in zip(kernel, stride, dilation, strict=True))"
    " | overlap = any(s <= d * (k - 1) + 1 for k, s, d in zip(kernel, stride, dilation, strict=True))": "slower, the same sums",
    "gradlab/ops/indexing.py"
    " | step = max(CHUNK // max(width, 1), 1)"
    " | step = max(CHUNK // max(width, 2), 1)": "how many rows are taken at a time",
    "gradlab/ops/zeta.py"
    " | q, inverse = np.where(rest, q, 1), 1 / np.where(rest, q, 1)"
    " | q, inverse = np.where(rest, q, 1), 1 / np.where(rest, q, 2)": "what stands at places that are not used",
    "gradlab/ops/conv_cpu.py"
    " | y += b.reshape(-1, *(1,) * len(stride))"
    " | y += b.reshape(-2, *(1,) * len(stride))": "NumPy takes any negative size for the one to be found",
    "gradlab/ops/indexing.py"
    " | if width >= 64 and rows.size >= GROUP * len(total):"
    " | if width >= 64 or rows.size >= GROUP * len(total):": "two ways to the same sums, of which one is quicker",
    "gradlab/autograd/mode.py"
    " | def __new__(cls, mode: bool"
    " | Callable[..., Any] = True) -> Any:"
    " | def __new__(cls, mode: bool"
    " | Callable[..., Any] = False) -> Any:": "__init__ has the same default, and __new__ looks only for a function",
    "gradlab/autograd/fast_rows.py"
    " | known.clear()"
    " | pass": "bounds a cache",
    "gradlab/autograd/inplace.py"
    " | if getrefcount(twin) > _HELD_HERE:"
    " | if getrefcount(twin) >= _HELD_HERE:": "a copy more",
    "gradlab/autograd/engine.py"
    " | return getrefcount(array) <= _ALONE + 1"
    " | return getrefcount(array) <= _ALONE - 1": "a copy more",
    "gradlab/autograd/engine.py"
    " | elif type(old._array) is not np.ndarray:"
    " | elif not (type(old._array) is not np.ndarray):": "the way for memory of a GPU, which is right on the CPU, too",
    "gradlab/autograd/formulas.py"
    " | if not (a_for_a or b_for_b):"
    " | if not (not (a_for_a or b_for_b)):": "the general keeper below keeps the same",
    "gradlab/autograd/walk.py"
    " | waiting = waiting + part if type(waiting) is Sum or waiting._array.dtype not in HALF else half(waiting, part)"
    " | waiting = waiting + part if type(waiting) is Sum or waiting._array.dtype not in HALF else half(part, waiting)": "a sum",
    "gradlab/autograd/graph_cuts.py"
    ' | if frame.f_code.co_name == "wrapped" and frame.f_back is not None:'
    ' | if frame.f_code.co_name == "wrapped" or frame.f_back is not None:': "a frame that nobody called is that of a thread's start in C",
    "gradlab/ops/sort.py"
    ' | if rest.dtype.kind == "f" and np.isfinite(rest).all():'
    " | if False:": "a quicker way to the same",
    "gradlab/graph/guards/frame_operands.py"
    " | sizes = [i for i in range(variables) if words[i] & _LOW == top - variables + 1]"
    " | sizes = [i for i in range(variables) if words[i] & _LOW == top + variables + 1]": "then the size is counted instead of read",
    "gradlab/ops/quantized.py"
    " | both = lower.new_zeros((*w.shape, 2))"
    " | both = lower.new_ones((*w.shape, 2))": "each place is written in the next line",
    "gradlab/ops/quantized.py"
    " | same_dtype(x, x_scale)"
    " | same_dtype(x_scale, x)": "the same question",
    "gradlab/ops/gather.py"
    " | return total.reshape(-1)"
    " | return total.reshape(-2)": "NumPy takes any negative size for the one to be found",
    "gradlab/onnx/rows/linalg.py"
    ' | norm = e.reduce("ReduceMax", e.reduce("ReduceSum", e("Abs", a), (1,), False), (0, 1), False)'
    ' | norm = e.reduce("ReduceMax", e.reduce("ReduceSum", e("Abs", a), (2,), False), (0, 1), False)': "another norm, as good a bound",
    "gradlab/graph/guards/reads.py"
    ' | if value is os and by in ("environ", "getenv"):'
    ' | if not (value is os and by in ("environ", "getenv")):': "where frames can be read, `accesses.py` notes it, too",
    "gradlab/graph/passes/fuse_batch_norm.py"
    " | if call is not None and id(call) not in seen and order[id(call)] > order[id(norm)]:"
    " | if call is not None and id(call) not in seen and order[id(call)] >= order[id(norm)]:": "the norm itself has been asked for before",
    "gradlab/graph/guards/sources.py"
    " | return value[by.key] if type(value) in KEYED and not (type(value) is defaultdict and by.key not in value) else GONE"
    " | return value[by.key] if type(value) in KEYED and not (type(value) is defaultdict or by.key not in value) else GONE":
    "an entry that is not reached is noted with all of its table",
    "gradlab/graph/guards/bytecode.py"
    " | self._done.add(key)"
    " | pass": "the same is noted again",
    "gradlab/graph/guards/guards.py"
    " | if value is None or value is True or value is False:"
    " | if value is None and value is True or value is False:": "a condition on the object instead of on its value: the same object",
    "gradlab/autograd/formulas.py"
    " | return back_crossed if crossed and op.kept_inputs == (b, a) else back"
    " | return back_crossed if crossed and op.kept_inputs != (b, a) else back": "the general way to the same gradients",
    "gradlab/autograd/formulas.py"
    " | return not op.kept_inputs and not op.kept_outputs, crossed"
    " | return not op.kept_inputs and op.kept_outputs, crossed": "the general keeper keeps nothing, too",
    "gradlab/autograd/fast_elementwise.py"
    " | shape = joint_shape(x, y)"
    " | shape = joint_shape(y, x)": "the same shape",
    "gradlab/autograd/fast_elementwise.py"
    " | if out.dtype is not (result or common):"
    " | if out.dtype is not (result and common):": "the general way to the same result",
    "gradlab/autograd/fast_rows.py"
    " | if len(known) >= KEPT_SHAPES:"
    " | if not (len(known) >= KEPT_SHAPES):": "bounds a cache",
}

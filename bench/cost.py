"""What one operation on few elements costs, in microseconds, beside PyTorch where it is installed.

Three numbers for each chain of operations: forward without graph, forward with graph, forward and backward. Both engines run in turns in
one process on one thread, and medians are compared, so that a slow moment of the machine touches both alike:

    python bench/cost.py            # two minutes or so
    python bench/cost.py --smoke    # to see that the program works; its numbers mean little
    python bench/cost.py --table    # 430 calls at 16 and 1,000 elements, least processor times; words choose families or calls

On tiny matrices OpenBLAS decides a part of the matmul numbers. Run with OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE unset, as a user would:
values set for another machine can double the cost of a product. Close other programs; a busy machine widens the quartiles.
"""

import argparse
import gc
import os
import statistics
import sys
import time

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402 - BLAS reads the variables when it is loaded

import gradlab  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

LENGTH = 100  # operations in a chain
KINDS = ("forward without graph", "forward with graph", "forward and backward")

# Calls for `--table`, by family. L is the engine, F its functions; x and y are matrices, v and w vectors, m is square, s three-dimensional,
# i and j are indices (of a vector; of the matrix), t classes, b is a mask, o is written to, a an array of NumPy, r a generator, p a leaf.
# Families in BACK are also run with backward.
TABLE = {
    "creation": """L.tensor(1.5); L.tensor([1.0, 2.0, 3.0]); L.from_numpy(a); L.as_tensor(a); L.empty(4, 4); L.zeros(4, 4); L.ones(4, 4)
        L.full((4, 4), 1.5); L.arange(16); L.arange(0.0, 1.0, 0.1); L.linspace(0, 1, 16); L.eye(4); L.zeros_like(x)
        L.ones_like(x); L.empty_like(x); L.full_like(x, 2.0); x.new_zeros(4); x.new_tensor([1.0, 2.0]); x.clone(); x.detach()
        x.contiguous(); L.meshgrid(v, w, indexing='ij'); L.tril_indices(4, 4)""",
    "random": """L.rand(4, 4); L.randn(4, 4); L.randint(0, 9, (4, 4)); L.randperm(16); L.rand_like(x); L.randn_like(x)
        L.normal(0.0, 1.0, (4, 4)); L.bernoulli(u); L.multinomial(u, 2); L.rand(4, 4, generator=r); L.randn(4, 4, generator=r)
        o.uniform_(); o.normal_(); o.bernoulli_(0.5); L.manual_seed(1)""",
    "facts": """x.shape; x.shape[0]; x.size(0); x.dim(); x.numel(); len(x); x.dtype; x.device; x.is_contiguous(); x.stride()
        x.requires_grad; x.is_floating_point(); x.data_ptr(); z.item(); float(z); bool(z > 0); v.tolist(); x.tolist(); yd.numpy()
        x.grad; x.is_leaf; x.data; L.is_tensor(x); str(z); L.is_grad_enabled(); L.get_default_dtype(); list(x); L.equal(x, y)
        L.allclose(x, y); x.size()""",
    "modes": "with L.no_grad(): pass\nwith L.enable_grad(): pass\nwith L.inference_mode(): pass\nL.set_grad_enabled(True)",
    "views": """x.view(-1); x.reshape(-1); x.T; x.t(); x.mT; x.transpose(0, 1); x.permute(1, 0); x.unsqueeze(0); q.squeeze(0); x.flatten()
        v.expand(2, n); x.view_as(y); x.narrow(0, 0, 1); x.select(0, 1); x.diagonal(); x.split(1); x.chunk(2); x.unbind(0)
        x.unfold(0, 2, 1); s.movedim(0, 2); v.unflatten(0, (2, -1)); x.swapaxes(0, 1); v.broadcast_to((2, n)); x.view_as(x)
        x.expand_as(x); v.as_strided((2, 2), (1, 1))""",
    "indexing": """x[0]; x[:, 0]; x[1:3]; x[..., 0]; x[:, None]; x[-1, 2]; v[3]; v[::2]; v[i]; x[i2]; x[i2, i2]; v[b1]; x[b]; x[:, i2]
        x.index_select(0, i2); x.gather(1, j); L.take_along_dim(x, j, 1); x.masked_select(b); L.take(x, j); F.embedding(i2, x)
        x[[0, 1]]""",
    "setitem": """o[0] = 1.0; o[:, 0] = 1.0; o[1, 2] = 3.0; o[0] = o1; o[:] = y; o[b] = 0.0; o[i2] = 1.0; o[..., 0] = 0.0
        o.index_fill_(0, i2, 1.0); o.scatter_(1, j, y); o.scatter_(1, j, 1.0); o.index_add_(0, i4, y); o.index_copy_(0, i4, y)
        o.masked_fill_(b, 0.0); o.scatter_add_(1, j, y)""",
    "in place": """o.zero_(); o.fill_(1.0); o.copy_(y); o.add_(y); o.sub_(y); o.mul_(y); o.div_(y1); o.add_(1.0); o.mul_(0.5); o.div_(2.0)
        o.sub_(1.0); o.add_(y, alpha=0.1); o.lerp_(y, 0.1); o.addcmul_(y, y, value=0.1); o.addcdiv_(y, y1, value=0.1)
        o.clamp_(-1, 1); o.clamp_(min=0); o.neg_(); o.abs_(); o.relu_(); o.sigmoid_(); o.tanh_(); o.exp_(); o.sqrt_(); o.pow_(2)
        m2.addmm_(m, m); o += y; o *= 0.5; o -= y; o /= 2.0; m2.t_(); m2.unsqueeze_(0).squeeze_(0); o.detach_()""",
    "elementwise": """x + y; x - y; x * y; x / y1; x + 1.0; 1.0 - x; x * 2.0; 1.0 / y1; x + 1; -x; x ** 2; x ** 3; x ** 0.5; x ** y
        2.0 ** x
        x // 2.0; x % 2.0; x.abs(); x.exp(); y1.log(); y1.sqrt(); y1.rsqrt(); x.sin(); x.cos(); x.tanh(); x.sigmoid(); x.square()
        y1.reciprocal(); x.sign(); x.floor(); x.round(); x.erf(); y1.log1p(); x.expm1(); x.clamp(-0.5, 0.5); x.clamp(min=0.0)
        x.clamp_min(0.0); L.maximum(x, y); L.minimum(x, y); L.where(b, x, y); L.where(b, x, 0.0); x.masked_fill(b, 0.0)
        L.lerp(x, y, 0.3); x.pow(2); x.pow(2.0); L.add(x, y, alpha=2.0); L.addcmul(x, x, y); L.addcdiv(x, x, y1); L.atan2(x, y1)
        L.hypot(x, y); x.nan_to_num(); x.float(); x.double(); x.to(L.float32); x.type_as(y); x + v4; x * c4; x.tril(); x.triu()
        L.fmod(x, 2.0); x.sinh(); L.logaddexp(x, y); y1.log2(); x.trunc(); x.half()""",
    "comparisons": """x > y; x == y; x > 0; x != 0; x <= y; ~b; b & b; b | b; b.any(); b.all(); L.isnan(x); L.isfinite(x)
        L.logical_and(b, b)
        L.isclose(x, y); b.sum(); b.float(); b.long(); k + k; k * 2; k == k; k.float(); k // 2; k.sum(); b.nonzero(); k.max()
        L.isin(k, k); L.bincount(k)""",
    "reductions": """x.sum(); x.sum(0); x.sum(1); x.sum(1, keepdim=True); x.mean(); x.mean(0); x.mean(-1, keepdim=True); x.amax(1); x.max()
        x.min(); x.max(1).values; x.prod(); x.var(); x.var(1); x.std(); x.std(1); x.norm(); x.norm(dim=1); L.linalg.norm(x)
        L.linalg.vector_norm(x); x.logsumexp(1); x.cumsum(1); x.cumprod(1); L.var_mean(x); v.sort().values; v.topk(2).values
        x.median(); x.sum((0, 1)); L.trace(m); L.diff(v); v.kthvalue(2).values; L.quantile(v, 0.5); x.aminmax().max; x.flip(0)
        x.roll(1, 0)""",
    "searches": """x.argmax(); x.argmax(1); x.argmin(); v.argsort(); L.searchsorted(g, v); L.unique(k); L.histc(v, 4); L.bucketize(v, g)
        L.count_nonzero(x); x.cummax(1).indices""",
    "products": """x @ z4; m @ m; m @ c; m.mm(m); m.mv(c); v.dot(w); v @ w; L.outer(v4, v4); s.bmm(s); s @ s; L.addmm(m, m, m)
        L.einsum('ij,jk->ik', m, m); L.einsum('i,i->', v, w); F.linear(m, m); F.linear(m, m, c); L.baddbmm(s, s, s)
        L.addmv(c, m, c); L.tensordot(m, m, 1); m.inverse(); L.linalg.solve(m, c); m.det(); L.kron(q2, q2); L.cdist(m, m)""",
    "joins": """L.cat([x, y]); L.cat([x, y], 1); L.stack([x, y]); L.stack([v, w], 1); L.hstack([x, y]); L.vstack([x, y])
        L.cat([x, y, x, y]); x.repeat(2, 1); x.repeat_interleave(2, 0); F.pad(x, (1, 1)); x.tile(2); L.concat([v, w])
        L.stack([z, z]); F.one_hot(t); L.block_diag(x, y); L.cartesian_prod(v4, v4)""",
    "activations": """F.relu(x); F.gelu(x); F.silu(x); F.softmax(x, 1); F.log_softmax(x, 1); F.leaky_relu(x); F.elu(x); F.softplus(x)
        F.hardswish(x); F.dropout(x, 0.5); F.logsigmoid(x); F.selu(x); x.softmax(-1); F.mish(x); F.glu(x, 1)
        F.normalize(x, dim=1); F.cosine_similarity(x, y); F.hardtanh(x); F.relu6(x); F.tanh(x); F.sigmoid(x); F.softmin(x, 1)""",
    "losses": """F.mse_loss(x, yd); F.l1_loss(x, yd); F.smooth_l1_loss(x, yd); F.cross_entropy(x, t); F.nll_loss(x, t)
        F.binary_cross_entropy(x.sigmoid(), u); F.kl_div(x, u); F.binary_cross_entropy_with_logits(x, u); F.huber_loss(x, yd)
        F.mse_loss(x, yd, reduction='sum'); F.cross_entropy(x, t, label_smoothing=0.1); F.cosine_embedding_loss(x, y, e)
        F.triplet_margin_loss(x, y, x); F.margin_ranking_loss(v, w, e1); F.poisson_nll_loss(x, yd)""",
    "norms": """F.layer_norm(x, x.shape[1:]); F.layer_norm(x, x.shape[1:], v4, v4); F.rms_norm(x, x.shape[1:])
        F.batch_norm(x, None, None, training=True); F.group_norm(x, 2); F.batch_norm(x, ze, on)
        F.scaled_dot_product_attention(h, h, h); F.conv2d(im, ke); F.conv1d(sg, k1); F.max_pool2d(im, 2); F.avg_pool2d(im, 2)
        F.interpolate(im, scale_factor=2); F.adaptive_avg_pool2d(im, 1); F.instance_norm(im)""",
    "modules": """Linear(x); LayerNorm(x); BatchNorm1d(x); Embedding(i); Dropout(x); ReLU(x); Sequential(x); MHA(s, s, s)[0]; GRUCell(x)
        LSTMCell(x)[0]; Softmax(x); GELU(x); Identity(x); MSELoss(x, yd); CrossEntropyLoss(x, t); Flatten(im); Conv2d(im)
        LSTM(s)[0]; Encoder(s)""",
    "training": """SGD.step(); momentum.step(); Adam.step(); AdamW.step(); RMSprop.step(); Adam.zero_grad(); clip()
        L.autograd.grad((p * 2).sum(), p); hooked(); p.requires_grad_(); scheduler.step(); list(model.parameters())
        model.state_dict(); model.zero_grad(); model.train(); collate(rows); next(iter(loader)); model.eval(); Parameter(o)
        checkpointed(); function(x); list(loader)""",
}
BACK = ["views", "indexing", "elementwise", "reductions", "products", "joins", "activations", "losses", "norms", "modules"]


def muladd(y, w, b):
    for _ in range(LENGTH // 2):
        y = y * w + b
    return y


def tanh(y, w, b):
    for _ in range(LENGTH):
        y = y.tanh()
    return y


def matmul(y, w, b):
    for _ in range(LENGTH):
        y = y @ w
    return y


def mixed(y, w, b):
    for _ in range(LENGTH // 4):
        y = (y @ w * b + b).tanh()
    return y


CHAINS = (muladd, tanh, matmul, mixed)


def operands(chain):
    """Start, two leaves and the gradient of the result, as NumPy arrays of 16 elements."""
    random = np.random.default_rng(0)
    start, w, b = (random.uniform(0.9, 1.0, (4, 4)).astype("float32") for _ in range(3))
    if chain in (matmul, mixed):
        w = (np.eye(4) * 0.9 + 0.01).astype("float32")
    return start, w, b, np.ones((4, 4), "float32")


def works(engine, chain):
    """The three pieces of work of a chain, and its gradients."""
    start, w, b, gradient = (engine.tensor(a.tolist()) for a in operands(chain))
    leaves = [start, w, b] if chain is tanh else [w, b]
    for leaf in leaves:
        leaf.requires_grad_()

    def plain():
        with engine.no_grad():
            chain(start, w, b)

    def recorded():
        return chain(start, w, b)

    def both():
        for leaf in leaves:
            leaf.grad = None
        chain(start, w, b).backward(gradient)

    both()
    return (plain, recorded, both), [np.array(x.grad.tolist()) for x in leaves if x.grad is not None]


def microseconds(work):
    """One run of a chain, for each of its operations."""
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) / LENGTH * 1e6


def named(L, n):
    """What the calls of the table name, of about n elements."""
    random, nn = np.random.default_rng(0), L.nn
    rows, width, k, side = (4, 4, 4, 4) if n == 16 else (25, 40, 32, 16)

    def normal(*shape):
        return L.from_numpy(random.standard_normal(shape).astype("f"))

    def index(below, *shape):
        return L.from_numpy(random.integers(0, below, shape))

    x, y, u = (normal(rows, width) for _ in "xyu")
    v, w, m, s, z = normal(n), normal(n), normal(k, k), normal(2, k, k), normal()
    x, v, m, s = (leaf.requires_grad_() for leaf in (x, v, m, s))
    leaves = {"x": x, "v": v, "m": m, "s": s}
    p = nn.Parameter(normal(rows, width))
    p.grad = normal(rows, width)
    q = normal(1, rows, width)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    optimizers = {}
    for name, make in {
        "SGD": lambda q: L.optim.SGD(q, 1e-9), "momentum": lambda q: L.optim.SGD(q, 1e-9, momentum=0.9),
        "Adam": lambda q: L.optim.Adam(q, 1e-9),
        "AdamW": lambda q: L.optim.AdamW(q, 1e-9), "RMSprop": lambda q: L.optim.RMSprop(q, 1e-9),
    }.items():  # fmt: skip
        held = [nn.Parameter(normal(rows, width)) for _ in range(4)]
        for each in held:
            each.grad = normal(rows, width)
        optimizers[name] = make(held)
    held = [nn.Parameter(normal(rows, width))]
    held[0].grad = normal(rows, width)
    watched = normal(rows, width).requires_grad_()
    watched.register_hook(lambda g: None)

    class Function(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    data = L.utils.data
    rows_of_data = [(normal(width), i) for i in range(8)]
    images = normal(1, 2, side, side)
    return {
        "L": L, "F": nn.functional, "x": x, "y": y, "v": v, "w": w, "m": m, "s": s, "z": z, "u": u.sigmoid(), "p": p, "q": q, "n": n,
        "y1": y.abs() + 0.1, "yd": y, "v4": normal(width), "c4": normal(rows, 1), "z4": normal(width, 4), "c": normal(k),
        "q2": normal(2, 2), "m2": normal(k, k),
        "o": normal(rows, width), "o1": normal(width), "i": index(rows, n), "i2": index(rows, rows),
        "i4": L.from_numpy(random.permutation(rows)),
        "j": index(width, rows, width), "k": index(8, n), "t": index(width, rows), "b": y > 0, "b1": w > 0,
        "a": random.standard_normal((rows, width)),
        "g": L.from_numpy(np.linspace(-1, 1, 8, dtype="f")), "r": L.Generator(), "e": L.ones(rows), "e1": L.ones(n),
        "ze": L.zeros(width), "on": L.ones(width),
        "h": normal(1, 2, k, k // 2), "im": images, "ke": normal(4, 2, 3, 3), "sg": normal(1, 2, n // 2), "k1": normal(4, 2, 3),
        "Linear": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width), "BatchNorm1d": nn.BatchNorm1d(width),
        "Embedding": nn.Embedding(rows, 4),
        "Dropout": nn.Dropout(0.5), "ReLU": nn.ReLU(), "Sequential": model, "MHA": nn.MultiheadAttention(k, 2, batch_first=True),
        "GRUCell": nn.GRUCell(width, 4),
        "LSTMCell": nn.LSTMCell(width, 4), "Softmax": nn.Softmax(-1), "GELU": nn.GELU(), "Identity": nn.Identity(), "MSELoss": nn.MSELoss(),
        "CrossEntropyLoss": nn.CrossEntropyLoss(), "Flatten": nn.Flatten(), "Conv2d": nn.Conv2d(2, 4, 3),
        "LSTM": nn.LSTM(k, 4, batch_first=True), "Encoder": nn.TransformerEncoderLayer(k, 2, 8, batch_first=True, dropout=0.0),
        **optimizers, "Parameter": nn.Parameter, "model": model, "clip": lambda: nn.utils.clip_grad_norm_([p], 1.0),
        "hooked": lambda: (watched * 2).sum().backward(), "scheduler": L.optim.lr_scheduler.StepLR(L.optim.SGD(held, 1e-9), 1000000),
        "collate": data.default_collate, "rows": rows_of_data, "loader": data.DataLoader(rows_of_data, 4), "function": Function.apply,
        "checkpointed": lambda: L.utils.checkpoint.checkpoint(model, x, use_reentrant=False), "leaves": leaves,
    }  # fmt: skip


def calls(words):
    """The table's calls as (family, call), those that are asked for."""
    every = [(family, call.strip()) for family, text in TABLE.items() for call in text.replace("; ", "\n").split("\n")]
    def asked(family, call):
        return not words or any(word in (family, call) or (word in call and len(word) > 3) for word in words)

    return [(family, call) for family, call in every if asked(family, call)]


def loop(call, names, back):
    """A function of a number: the seconds that so many calls take. None where a call has no gradient."""
    L, body, scope = names["L"], call, dict(names, clock=time.thread_time)
    if back:
        y = eval(call, scope)
        y = y[0] if isinstance(y, (tuple, list)) else y
        if not getattr(y, "requires_grad", False):
            return None
        scope["ones"] = L.ones_like(y)
        used = [name for name in names["leaves"] if name in compile(call, "", "exec").co_names]
        body = f"y_ = {call}\n" + ("y_ = y_[0]\n" if isinstance(eval(call, scope), (tuple, list)) else "")
        body += "y_.backward(ones)\n" + "".join(f"{name}.grad = None\n" for name in used)
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    exec(f"def run(number):\n    global o\n    begin = clock()\n    for _ in range(number):\n{lines}    return clock() - begin", scope)
    if back or call.startswith(("hooked", "checkpointed", "L.autograd", "with ", "L.set_grad")):
        return scope["run"]

    def without_graph(number):
        with L.no_grad():
            return scope["run"](number)

    return without_graph


def table(words, rounds):
    """Prints what each call costs, in turns, by the least processor times of `rounds`."""
    ratios, columns = {}, [(n, back) for back in (False, True) for n in (16, 1000)]
    print("gradlab / PyTorch in µs and their ratio: " + "; ".join(f"{n} elements{', with backward' * back}" for n, back in columns))
    known = {n: [named(L, n) for L in (gradlab, torch)] for n in (16, 1000)}
    for family, call in calls(words):
        line = f"{family:12}{call:48}"
        for n, back in columns:
            if back and family not in BACK:
                continue
            try:
                loops = [loop(call, names, back) for names in known[n]]
                if None in loops:
                    continue
                number = max(3, min(300, int(4e-4 / max(1e-7, min(f(3) for f in loops) / 3))))
                took = [[f(number) / number * 1e6 for f in loops] for _ in range(rounds)]
            except Exception as error:
                line += f"  {str(error)[:60]}"
                continue
            ours, theirs = (min(column) for column in zip(*took))
            ratios.setdefault((n, back), {})[family, call] = ours / theirs
            line += f"{ours:8.2f} /{theirs:7.2f} {ours / theirs:5.2f}{'!' if ours > theirs else ' '}"
        print(line, flush=True)
    for (n, back), found in ratios.items():
        middle = statistics.geometric_mean(found.values())
        above = sum(r > 1 for r in found.values())
        print(f"{n} elements{', with backward' * back}: {above} of {len(found)} above 1.0, geometric mean {middle:.2f}")


def main():
    parser = argparse.ArgumentParser(description="What one operation on 16 elements costs.")
    parser.add_argument("words", nargs="*", help="with --table: families or calls")
    parser.add_argument("--table", action="store_true", help="430 calls beside PyTorch")
    parser.add_argument("--rounds", type=int, default=12, help="turns that each engine gets (default 12)")
    parser.add_argument("--runs", type=int, default=30, help="runs of a chain in a turn (default 30)")
    parser.add_argument("--smoke", action="store_true", help="one turn of two runs")
    parser.add_argument("--no-gc", action="store_true", help="measure with the garbage collector off")
    options = parser.parse_args()
    rounds, runs = (1, 2) if options.smoke else (options.rounds, options.runs)
    if options.table:
        torch.set_num_threads(1)
        gradlab.set_num_threads(1)
        return table(options.words, rounds)
    engines = {"gradlab": gradlab}
    if torch is not None:
        torch.set_num_threads(1)
        engines["torch"] = torch
    if options.no_gc:
        gc.disable()

    prepared = {(name, chain): works(engine, chain) for name, engine in engines.items() for chain in CHAINS}
    times = {(name, chain, kind): [] for name, chain in prepared for kind in range(len(KINDS))}
    if torch is not None:
        for chain in CHAINS:
            for ours, theirs in zip(prepared["gradlab", chain][1], prepared["torch", chain][1], strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-5)
    for _ in range(rounds):
        for chain in CHAINS:
            for kind in range(len(KINDS)):
                for name in engines:  # innermost, so that both meet the same moments
                    work = prepared[name, chain][0][kind]
                    work()
                    times[name, chain, kind] += [microseconds(work) for _ in range(runs)]

    versions = f"Python {sys.version.split()[0]}, NumPy {np.__version__}" + (f", PyTorch {torch.__version__}" if torch is not None else "")
    print(f"{versions}; 16 float32 elements, µs per operation, median (quartiles); collector {'on' if gc.isenabled() else 'off'}")
    for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        if variable in os.environ:
            print(f"note: {variable}={os.environ[variable]} is set; unset it for numbers that a user would see")
    for chain in CHAINS:
        for kind, title in enumerate(KINDS):
            line, medians = f"{chain.__name__:<8}{title:<24}", []
            for name in engines:
                low, middle, high = statistics.quantiles(times[name, chain, kind], n=4)
                medians.append(middle)
                line += f"{name:>9} {middle:6.2f} ({low:.2f}-{high:.2f})"
            print(line + (f"   ratio {medians[0] / medians[1]:.2f}" if len(medians) == 2 else ""))


if __name__ == "__main__":
    main()

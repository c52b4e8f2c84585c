"""Statements of random programs: lines of Python that PyTorch and gradlab both understand, drawn for the variables at hand.

`draw(r, known)` gives a line such as `t7 = t2.transpose(0, 1)`. `known` maps names to what they hold at that point; a line may well be
one that both engines refuse. What only gradlab has (`cond`, `scan`) is in `CONTROL`, drawn for comparisons that PyTorch takes no part in.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int8", "uint8")

SMOOTH = (
    "{a}.tanh()", "{a}.sigmoid()", "F.gelu({a})", "F.gelu({a}, approximate='tanh')", "F.silu({a})", "F.softplus({a})", "{a}.sin()",
    "{a}.cos()", "-{a}", "{a}.clamp(-2, 2).exp()", "({a}.abs() + 0.5).log()", "({a}.square() + 0.1).sqrt()", "{a}.erf()", "{a}.clone()",
    "{a}.square()", "({a}.square() + 0.7).reciprocal()", "({a}.square() + 0.3).rsqrt()", "{a}.atan()", "{a}.clamp(-1, 1).sinh()",
    "F.logsigmoid({a})", "F.mish({a})", "{a}.clamp(-2, 2).expm1()", "{a}.abs().log1p()", "{a}.asinh()", "F.elu({a})", "F.selu({a})",
    "F.softsign({a})", "F.tanhshrink({a})", "torch.sinc({a})", "({a}.abs() + 1.5).lgamma()", "torch.special.i0e({a})", "{a}.contiguous()",
    "{a}.positive()", "torch.special.erfcx({a}.abs())", "{a}.exp2().clamp(max=3)", "({a}.abs() + 0.2).log2()", "({a}.tanh() * 0.7).atanh()",
    "{a}.nan_to_num()", "F.celu({a}, 0.7)", "F.relu6({a} * 2 + 1.1)",
)  # fmt: skip
SHARP = (
    "{a}.relu()", "{a}.abs()", "{a}.sign()", "{a}.floor()", "{a}.ceil()", "{a}.round()", "{a}.trunc()", "{a}.frac()",
    "{a}.clamp(-0.6, 0.7)", "F.leaky_relu({a}, 0.1)", "F.hardtanh({a})", "F.hardswish({a})", "F.hardsigmoid({a})",
    "F.threshold({a}, 0.1, -0.3)", "F.softshrink({a}, 0.2)", "F.hardshrink({a}, 0.2)", "{a}.round(decimals=1)",
    "{a}.heaviside({a}.detach())", "{a}.sgn()", "F.relu6({a})",
)  # fmt: skip
BINARY = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / ({b} * {b} + 0.8)", "torch.where({a} > {b}, {a}, {b} * 0.5)", "{a} + 0.25 * ({b} - {a})",
    "torch.lerp({a}, {b}, 0.3)", "torch.maximum({a}, {b})", "torch.minimum({a}, {b})", "torch.hypot({a}, {b} + 2)",
    "torch.atan2({a}, {b} + 3)", "torch.logaddexp({a}, {b})", "torch.addcmul({a}, {b}, {c}, value=0.7)",
    "torch.addcdiv({a}, {b}, {c}.square() + 1, value=-0.4)", "torch.sub({a}, {b}, alpha=0.3)", "torch.add({a}, {b}, alpha=2)",
    "({a}.abs() + 0.3) ** {b}.clamp(-1, 2)", "torch.xlogy({a}, {b}.abs() + 0.4)", "torch.fmod({a}, {b}.abs() + 0.9)",
    "torch.remainder({a}, {b}.abs() + 0.9)", "torch.dist({a}, {b})", "{a}.copysign({b})", "F.mse_loss({a}, {b}.expand_as({a}))",
    "F.smooth_l1_loss({a}, {b}.expand_as({a}), beta=0.5)", "F.cosine_similarity({a}, {b}, dim=-1)", "F.pairwise_distance({a}, {b})",
    "F.binary_cross_entropy_with_logits({a}, {b}.expand_as({a}).sigmoid())", "F.huber_loss({a}, {b}.expand_as({a}))",
    "torch.logaddexp2({a}, {b})", "F.kl_div({a}.log_softmax(-1), {b}.expand_as({a}).softmax(-1), reduction='sum')", "torch.rsub({a}, {b})",
    "{a}.float_power(2) + {b}", "torch.ldexp({a}, {b}.sign())", "F.poisson_nll_loss({a}.clamp(-2, 2), {b}.abs().expand_as({a}))",
)  # fmt: skip
NUMBER = (
    "{a} * {n}", "{a} + {n}", "{n} - {a}", "({a}.abs() + 0.2) ** {n}", "{a} / ({n} + 2.5)", "{n} / ({a}.square() + 1)",
    "torch.rsub({a}, {n})", "{a}.clamp(min={n})", "{a}.clamp_max({n})", "{n} * {a} - {n}", "torch.full_like({a}, {n}) + {a}",
    "{a}.masked_fill({a} > 0.5, {n})", "{a}.fmod({n} + 2.3)", "{a}.remainder({n} + 2.3)", "torch.where({a} > 0, {a}, {n})",
    "({a} * {n}).tanh() * {n}", "1.9 ** {a}.clamp(-2, 2) * {n}",
)  # fmt: skip
# What counts zeros makes them itself: others, such as log(1), half types round away from zero or to it, and no disturbance tells.
REDUCE = (
    "{a}.sum({d}, keepdim={k}) * 0.3", "{a}.mean({d}, keepdim={k})", "{a}.amax({d}, keepdim={k})", "{a}.amin({d}, {k})",
    "{a}.var({d}, correction=0, keepdim={k})", "{a}.logsumexp({d}, keepdim={k})", "({a}.square().sum({d}, {k}) + 0.1).sqrt()",
    "torch.linalg.vector_norm({a} + 2, {n}, {d}, {k})", "{a}.norm(dim={d}, keepdim={k})", "{a}.prod({d}, keepdim={k})",
    "{a}.max({d}, {k}).values", "{a}.min({d}, {k})[0]", "{a}.median({d}, {k}).values", "{a}.nansum({d}, {k})",
    "torch.std({a} + {a}.cumsum({d}), {d}, correction=0)", "{a}.quantile(0.4, {d}, {k})", "{a}.argmax({d})", "{a}.all({d})",
    "({a} > 0).sum({d})", "{a}.sum()", "{a}.mean()", "{a}.max()", "({a} * ({a} > 0.3)).count_nonzero({d})",
    "torch.std_mean({a} * 2, {d}, correction=0)[1]", "{a}.cummax({d}).values", "{a}.kthvalue(1, {d})[0]", "{a}.topk(1, {d}).values",
    "{a}.var()",
)  # fmt: skip
ALONG = (
    "{a}.softmax({d})", "{a}.log_softmax({d})", "{a}.cumsum({d}) * 0.4", "{a}.flip({d})", "{a}.roll(1, {d})", "{a}.sort({d}).values",
    "F.layer_norm({a}, {a}.shape[-1:])", "{a}.index_select({d}, torch.tensor([0, {last}, 0], device=device))", "F.pad({a}, (1, 0))",
    "F.pad({a}, (0, 2), value=0.3)", "torch.cat([{a}, {a} * 0.5], {d})", "F.normalize({a}, dim={d})", "{a}.cumprod({d})",
    "{a}.diff(dim={d})", "{a}.repeat_interleave(2, {d})", "torch.stack([{a}, {a} + 1], {d})", "{a}.logcumsumexp({d})",
    "{a}.renorm(2, {d}, 0.8)", "torch.take_along_dim({a}, {a}.argsort({d}), {d})",
    "{a}.index_add({d}, torch.tensor([0], device=device), {a}.narrow({d}, {last}, 1))", "{a}.argsort({d}).sum()",
    "{a}.gather({d}, {a}.argsort({d}))", "F.softmin({a}, {d})", "{a}.unique()", "{a}.tril()", "{a}.triu(1)",
    "F.rms_norm({a}, {a}.shape[-1:], eps=1e-3)", "F.glu(torch.cat([{a}, {a}], {d}), {d})", "{a}.scatter({d}, {a}.argsort({d}), 0.5)",
    "{a}.scatter_add({d}, {a}.argsort({d}), {a})", "torch.trapezoid({a}, dim={d})",
    "{a}.index_fill({d}, torch.tensor([0], device=device), 0.1)", "{a}.repeat(2, *[1] * ({a}.dim() - 1))", "{a}.tile(2)",
    "{a}.repeat(*[1] * {a}.dim())", "torch.cat([{a}], {d})", "{a}.msort()",
    "torch.block_diag({a}.flatten(1) if {a}.dim() > 1 else {a}, {a}.reshape(1, -1))",
)  # fmt: skip
VIEWS = (
    "{a}.transpose(0, -1)", "{a}.reshape(-1)", "{a}.select({d}, 0)", "{a}[::2]", "{a}.narrow({d}, {half}, {rest})", "{a}.unsqueeze({d})",
    "{a}.chunk(2, {d})[-1]", "{a}.detach()", "{a}.diagonal(0, 0, -1)", "{a}.unsqueeze(0).expand(2, *{a}.shape)", "{a}.mT", "{a}.flatten()",
    "{a}.squeeze({d})", "{a}[..., -1]", "{a}.unfold({d}, 1, 1)", "{a}.movedim(0, -1)", "{a}.view(-1)", "{a}.view({a}.shape)", "{a}.t()",
    "{a}.split(1, {d})[0]", "{a}.unbind({d})[0]", "{a}[None]", "{a}[1:]", "{a}.swapaxes(0, {d})", "{a}.expand(-1, *{a}.shape)",
    "{a}.unflatten(-1, (-1, 1))", "{a}.data", "{a}.ravel()", "{a}.reshape({a}.shape[0], -1)", "{a}.permute(*reversed(range({a}.dim())))",
    "{a}.contiguous().view(-1)", "{a}.view_as({a})", "{a}.expand_as({b})", "{a}.atleast_2d()", "{a}[[0]]", "{a}[{a} > 0]",
    "{a}[torch.tensor([0], device=device)]", "torch.broadcast_tensors({a}, {b})[0]", "{a}.transpose(0, -1).flatten()",
    "{a}.transpose(0, -1).reshape(-1)", "{a}.T.contiguous()", "{a}.squeeze()", "{a}[...]", "{a}[:, None]", "{a}.adjoint()",
    "{a}.to({a}.dtype)", "torch.tensor_split({a}, 2, {d})[0]",
)  # fmt: skip
WRITES = (
    "{a}.add_({b} * 0.5)", "{a}.mul_(0.7)", "{a}.copy_({b})", "{a}.zero_()", "{a}.tanh_()", "{a}.clamp_(-0.5, 0.5)", "{a}[0] = 0.25",
    "{a}[..., 0] = {b}.mean()", "{a}.masked_fill_({b} > 0.3, -0.2)", "{a} += {b}", "{a} *= 0.5", "{a}.sub_({b}, alpha=0.2)",
    "{a}[1:] = {b}[:1]", "{a}[{a} > 0.4] = 0.1", "{a}.t_()", "{a}.fill_(0.4)", "{a}.addcmul_({b}, {b}, value=0.1)", "{a}.lerp_({b}, 0.2)",
    "{a}.div_(1.7)", "{a}.index_fill_({d}, torch.tensor([0], device=device), 0.3)", "{a}.transpose(0, -1).mul_(0.9)",
    "{a}.reshape(-1)[0] = 0.6", "{a}.diagonal().fill_(0.2)", "{a}.squeeze_({d})", "{a}.unsqueeze_({d})", "{a}[:, -1] += 0.1",
    "{a}.view(-1).add_(0.05)", "{a}.sigmoid_()", "{a}.relu_()",
    "{a}.index_copy_({d}, torch.tensor([0], device=device), {b}.narrow({d}, 0, 1))", "{a}.scatter_({d}, {a}.argsort({d}), {b})",
    "{a}[[0]] = 0.8", "{a}.narrow({d}, 0, 1).copy_({b}.narrow({d}, 0, 1))", "{a}.cumsum_({d})", "{a}.fmod_(0.9)", "{a}.pow_(2)",
    "{a}.neg_()", "F.relu({a}, inplace=True)", "{a}.swapdims_(0, {d})", "{a}.detach().mul_(0.8)", "{a}.data.mul_(0.9)",
    "{a}.flatten().mul_(1.1)", "{a}.requires_grad_()", "{a}.repeat(2, *[1] * ({a}.dim() - 1)).mul_(2)", "{a}.contiguous().add_(0.1)",
    "{i}.add_(1)", "{i}.mul_(2)", "{i}[0] = 3",
)  # fmt: skip
PRODUCTS = (
    "({a} @ {b}) * 0.4", "torch.matmul({a}, {b}.mT) * 0.3", "F.linear({a}, {b}) * 0.3", "torch.einsum('...i,...i->...', {a}, {b})",
    "torch.outer({a}.flatten(), {b}.flatten()[:3])", "F.linear({a}, {b}, {c}) * 0.3", "torch.addmm({a}, {b}, {c}, beta=0.5, alpha=0.3)",
    "{a}.mv({b}) * 0.3", "torch.baddbmm({a}, {b}, {c}, alpha=0.2)", "torch.tensordot({a}, {b}, 1) * 0.3",
    "torch.einsum('ij,kj->ik', {a}, {b}) * 0.3", "torch.cdist({a}, {b} + 4)", "{a}.cov()", "torch.kron({a}, {b}[:1])",
    "F.scaled_dot_product_attention({a}[None], {b}[None], {b}[None])", "F.bilinear({a}, {b}, {c}[None] if {c}.dim() == 2 else {c}) * 0.2",
    "torch.linalg.norm({a})",
    "F.conv1d({a}[None] if {a}.dim() == 2 else {a}, {a}.reshape(1, -1)[:, :{a}.shape[0]].unsqueeze(-1).detach())",
    "F.max_pool1d({a}[None] if {a}.dim() < 3 else {a}, 2, 1)", "F.avg_pool1d({a}[None] if {a}.dim() < 3 else {a}, 2)",
    "F.interpolate({a}[None, None], scale_factor=2)", "torch.trace({a})", "F.adaptive_avg_pool1d({a}, 2)",
    "F.batch_norm({a}, None, None, training=True)", "F.group_norm({a}[None], 1)",
    "F.embedding(torch.tensor([[0, 1], [1, 0]], device=device), {a})", "F.unfold({a}[None, None], 2)",
    "F.cross_entropy({a}, torch.zeros({a}.shape[0], dtype=torch.int64, device=device))",
    "F.nll_loss({a}.log_softmax(-1), torch.zeros({a}.shape[0], dtype=torch.int64, device=device))",
    "torch.linalg.det({a} @ {a}.mT + torch.eye({a}.shape[0], device=device, dtype={a}.dtype))",
)  # fmt: skip
COUNTING = (
    "{i} + {j}", "{i} * {j}", "{i} // 3", "{i} % 5", "{i} - {j}", "{i}.sum()", "{i}.cumsum(0)", "{i} & 6", "{i} | {j}", "{i} ^ 3", "~{i}",
    "{i}.to(torch.float32)", "{i} > {j}", "{i} == 1", "{i}.max()", "{i} / 2", "{i} * 0.5", "{i} ** 2", "{i}.abs()", "-{i}", "{i}.prod()",
    "{i}.clamp(0, 4)", "{i}.bool()", "torch.where({i} > 1, {i}, {j})", "{i}.sort().values", "{i} + True", "{i}.sign()", "{i} << 1",
    "{i} >> 1", "{i}.float().mean()", "torch.bincount({i}.flatten().clamp(0, 6).long())", "{i}.unique()",
    "F.one_hot({i}.clamp(0, 6).long(), 7)", "{i}.fmod(3)", "{i}.gcd({j})", "{i}.min(0).values", "{i}.to(torch.int8)",
    "{i}.to(torch.uint8)", "{i}.nonzero()", "{i}.argmax()", "{i} + {a}.mean()", "torch.addcmul({i}, {i}, {j}, value=2)",
    "{i}.float() @ {i}.float().mT", "{i}.any()", "{i}.logical_not()",
)  # fmt: skip
CONTROL = (
    "torch.cond({a}.sum() > 0.05, lambda x: {f} * 0.6, lambda x: {g} * 0.6, ({a},))",
    "torch.switch(({a}.mean() * 4).floor().to(torch.int64).abs(), [lambda x: {f} * 0.6, lambda x: {g} * 0.6], ({a},))",
    "torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, {f} * 0.6), (torch.tensor(0, device=device), {a}.detach()))[1]",
    "torch.scan(lambda h, x: ({f} * 0.5 + h * 0.3, {g} * h), {a}.new_zeros({a}.shape[1:]), {a})[0]",
    "torch.scan(lambda h, x: ({f} * 0.5 + h * 0.3, {g} * h), {a}.new_zeros({a}.shape[1:]), {a})[1]", "F.dropout({a}, 0.3)",
    "{a} + 0.1 * torch.randn_like({a})", "torch.func.grad(lambda x: ({f}).sum())({a})", "torch.func.vmap(lambda x: {f} * x)({a})",
)  # fmt: skip
MODES = ("no_grad", "no_grad", "no_grad", "no_grad", "no_grad", "inference_mode", "enable_grad")
MENU = (
    (SMOOTH, 5), (BINARY, 7), (NUMBER, 4), (REDUCE, 4), (ALONG, 5), (VIEWS, 7), (WRITES, 7), (PRODUCTS, 3), (COUNTING, 3),
    (("{a}.to(torch.{t})",), 2),
)  # fmt: skip


def draw(r: random.Random, known: Mapping[str, Any], *, sharp: bool, control: bool, dtypes: tuple[str, ...]) -> str:
    """A line for the variables in `known` (name -> tensor, in the order in which they were made).

    sharp: whether functions with jumps and kinks may be drawn too. control: what only gradlab has. dtypes: floating point types of casts.
    """
    menu = [*MENU, *([(SHARP, 3)] if sharp else []), *([(CONTROL, 2)] if control else [])]
    forms = r.choices([forms for forms, _ in menu], [weight for _, weight in menu])[0]
    floats, counts = ([n for n, t in known.items() if t.is_floating_point() is floating] for floating in (True, False))
    if forms is COUNTING and not counts:
        forms = SMOOTH
    a = r.choice(floats)
    shape = tuple(known[a].shape)
    d = r.randrange(-max(len(shape), 1), max(len(shape), 1))
    size = shape[d] if shape else 1
    alike = [n for n in floats if tuple(known[n].shape) == shape]
    other = lambda: r.choice(alike if r.random() < 0.5 else floats)
    inner = lambda: r.choice(SMOOTH).format(a="x")
    fields = {
        "a": a, "b": other(), "c": other(), "d": d, "k": r.choice([True, False]), "n": r.choice([0, 1, 2, 0.5, -1, 1.5, 3, 0.1]),
        "last": max(size - 1, 0), "half": size // 2, "rest": size - size // 2, "f": inner(), "g": inner(),
        "t": r.choice([t for t in dtypes if t not in str(known[a].dtype)]), "i": r.choice(counts or [a]), "j": r.choice(counts or [a]),
    }  # fmt: skip
    text = r.choice(forms).format(**fields)
    if forms is WRITES:
        modes = MODES[:1] if text.endswith("_()") or "s_(" in text else MODES  # turned in inference mode, PyTorch's graph is lost
        return f"with torch.{r.choice(modes)}(): {text}" if r.random() < 0.4 else text
    target = f"t{len(known)}" if r.random() < 0.95 else r.choice(list(known))  # now and then a name is bound again
    line = f"{target} = {text}"
    return f"with torch.{r.choice(MODES)}(): {line}" if r.random() < 0.06 else line

"""More small training programs, as script_idioms.py: what tutorials and libraries of algorithms do around a model."""

import copy
import glob
import tempfile
import warnings
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
import torch.nn.utils.prune as prune
from torch.autograd import Function
from torch.distributions.normal import Normal
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.grad import conv2d_input, conv2d_weight
from torch.optim import SGD, lr_scheduler
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.tensorboard import SummaryWriter

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def waves(*shape, step=0.7, shift=0.0):
    return torch.from_numpy(np.sin(np.arange(int(np.prod(shape))) * step + shift).astype(np.float32)).view(*shape)


def settled(model, scale=0.3):
    for i, p in enumerate(model.parameters()):
        p.data.copy_(waves(*p.shape, step=1.3, shift=i) * scale)
    return model


def small(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return settled(nn.Sequential(*layers[:-1]))


@program
def gradients_of_samples():
    model, x, y = small(4, 5, 3), waves(6, 4), torch.arange(6) % 3
    params = {k: v.detach() for k, v in model.named_parameters()}

    def compute_loss(params, sample, target):
        predictions = functional_call(model, (params, {}), (sample.unsqueeze(0),))
        return F.cross_entropy(predictions, target.unsqueeze(0))

    each = vmap(grad(compute_loss), in_dims=(None, 0, 0))(params, x, y)
    return [v.pow(2).sum().item() for v in each.values()]


@program
def tangent_kernel():
    model, x = small(3, 4, 2), waves(3, 3)
    params = dict(model.named_parameters())
    jac = vmap(jacrev(lambda p, x: functional_call(model, p, (x.unsqueeze(0),)).squeeze(0)), (None, 0))(params, x)
    kernel = torch.stack([torch.einsum("Naf,Mbf->NMab", j.flatten(2), j.flatten(2)) for j in jac.values()]).sum(0)
    return kernel.flatten().tolist()


@program
def distillation():
    teacher, student = small(4, 8, 3).eval(), small(4, 3)
    optimizer, losses = torch.optim.Adam(student.parameters(), lr=0.01), []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.no_grad():
            soft = nn.functional.softmax(teacher(waves(5, 4)) / 2, dim=-1)
        logits = student(waves(5, 4))
        log_soft = nn.functional.log_softmax(logits / 2, dim=-1)
        soft_loss = torch.sum(soft * (soft.log() - log_soft)) / log_soft.size()[0] * (2**2)
        loss = 0.25 * soft_loss + 0.75 * nn.CrossEntropyLoss()(logits, torch.arange(5) % 3)
        loss.backward()
        optimizer.step()
        losses += [loss.item(), nn.KLDivLoss(reduction="batchmean")(log_soft, soft).item()]
    return losses


@program
def weights_that_are_computed():
    class Symmetric(nn.Module):
        def forward(self, X):
            return X.triu() + X.triu(1).transpose(-1, -2)

    layer = settled(nn.Linear(3, 3))
    parametrize.register_parametrization(layer, "weight", Symmetric())
    optimizer = SGD(layer.parameters(), lr=0.1)
    layer(waves(2, 3)).pow(2).sum().backward()
    optimizer.step()
    weight = layer.weight
    assert torch.allclose(weight, weight.T) and parametrize.is_parametrized(layer)
    parametrize.remove_parametrizations(layer, "weight")
    return [*layer.weight.flatten().tolist(), len(list(layer.parameters()))]


@program
def pruned_weights():
    model = small(4, 6, 3)
    prune.l1_unstructured(model[0], name="weight", amount=0.3)
    prune.ln_structured(model[2], name="weight", amount=0.5, n=2, dim=0)
    names = [len(dict(model.named_buffers())), len(list(model[0].named_parameters()))]
    F.cross_entropy(model(waves(2, 4)), torch.tensor([0, 1])).backward()
    zeros = 100.0 * float(torch.sum(model[0].weight == 0)) / float(model[0].weight.nelement())
    prune.remove(model[0], "weight")
    return [*names, zeros, model(waves(2, 4)).sum().item(), model[2].weight_orig.grad.abs().sum().item()]


@program
def profiled():
    model = small(3, 4, 2)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof, record_function("model_inference"):
        model(waves(2, 3))
    table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=10)
    return [float("model_inference" in table)]


@program
def functions_of_ones_own():
    class LegendrePolynomial3(Function):
        @staticmethod
        def forward(ctx, input):
            ctx.save_for_backward(input)
            return 0.5 * (5 * input**3 - 3 * input)

        @staticmethod
        def backward(ctx, grad_output):
            (input,) = ctx.saved_tensors
            return grad_output * 1.5 * (5 * input**2 - 1)

    a, b = (torch.full((), v, requires_grad=True) for v in (0.3, -0.2))
    x = torch.linspace(-2, 2, 50, dtype=torch.float)
    losses = []
    for _ in range(3):
        loss = (a * LegendrePolynomial3.apply(b * x) - torch.sin(x)).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            a -= 1e-3 * a.grad
            b -= 1e-3 * b.grad
            a.grad = b.grad = None
        losses.append(loss.item())
    assert torch.autograd.gradcheck(LegendrePolynomial3.apply, (torch.ones(2, dtype=torch.double, requires_grad=True),))
    return losses


@program
def hooks_that_look():
    model, seen = small(3, 4, 2), {}
    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(lambda m, i, o, name=name: seen.update({name: o.detach().norm().item()})))
    handles.append(model[0].register_full_backward_hook(lambda m, gi, go: seen.__setitem__("back", go[0].abs().sum().item())))
    model[0].weight.register_hook(lambda g: seen.__setitem__("weight", g.sum().item()))
    model(waves(2, 3)).sum().backward()
    for handle in handles:
        handle.remove()
    model(waves(2, 3) * 9)
    return [seen[k] for k in sorted(seen)]


@program
def transferred():
    body = nn.Sequential()
    body.add_module("conv", nn.Conv2d(3, 4, 3, padding=1))
    body.add_module("pool", nn.AdaptiveAvgPool2d((1, 1)))
    model = settled(nn.Sequential(body, nn.Flatten(), nn.Linear(4, 5)))
    for param in model.parameters():
        param.requires_grad = False
    model[2] = settled(nn.Linear(model[2].in_features, 2))
    criterion, best, top = nn.CrossEntropyLoss(label_smoothing=0.1), copy.deepcopy(model.state_dict()), 0.0
    optimizer = SGD([{"params": model[2].parameters()}, {"params": [], "lr": 1e-4}], lr=0.1, momentum=0.9, nesterov=True)
    scheduler, losses = lr_scheduler.CosineAnnealingLR(optimizer, T_max=4), []
    data = TensorDataset(waves(6, 3, 5, 5), torch.arange(6) % 2)
    parts = dict(zip(["train", "val"], random_split(data, [6, 0])))
    for _ in range(2):
        model.train()
        for inputs, labels in DataLoader(data, batch_size=3):
            with torch.set_grad_enabled(True):
                outputs = model(inputs)
                _, preds = torch.max(outputs, 1)
                loss = criterion(outputs, labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            top = max(top, torch.sum(preds == labels.data).double().item() / 3)
            losses.append(loss.item() * inputs.size(0))
        scheduler.step()
    model.load_state_dict(best)
    return [*losses, *scheduler.get_last_lr(), len(parts["train"]), model[2].weight.sum().item()]


@program
def style_of_a_picture():
    net, losses = settled(nn.Conv2d(3, 4, 3)).eval().requires_grad_(False), []

    def gram_matrix(input):
        a, b, c, d = input.size()
        features = input.view(a * b, c * d)
        return torch.mm(features, features.t()).div(a * b * c * d)

    style = gram_matrix(net(waves(1, 3, 8, 8, shift=1))).detach()
    img = waves(1, 3, 8, 8).clamp(0, 1)
    optimizer = torch.optim.LBFGS([img.requires_grad_()], max_iter=3)

    def closure():
        with torch.no_grad():
            img.clamp_(0, 1)
        optimizer.zero_grad()
        loss = F.mse_loss(gram_matrix(net(img)), style) * 1e3
        loss.backward()
        losses.append(loss.item())
        return loss

    optimizer.step(closure)
    return losses


@program
def best_of_five():
    output, target = waves(4, 7), torch.tensor([0, 2, 4, 6])
    _, pred = output.topk(3, 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / 4).item() for k in (1, 3)]


@program
def half_precision():
    model, losses = small(4, 6, 3), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=False)
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    for context in (nullcontext(), torch.amp.autocast(device_type=device_type, dtype=torch.bfloat16)):
        scaler = torch.amp.GradScaler(device_type, enabled=False)
        with context:
            logits = model(waves(5, 4))
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), torch.tensor([0, 1, 2, -1, 0]), ignore_index=-1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(round(loss.item(), 2))
    return losses


@program
def squashed_policies():
    net, target, losses = small(3, 8, 2), small(3, 8, 2), []
    log_std = nn.Parameter(torch.as_tensor(-0.5 * np.ones(2, dtype=np.float32)))
    obs, act = torch.as_tensor(np.array([waves(3).numpy()] * 4), dtype=torch.float32), waves(4, 2)
    optimizer = torch.optim.Adam([*net.parameters(), log_std], lr=1e-2)
    for _ in range(3):
        pi = Normal(net(obs), torch.exp(log_std))
        logp = pi.log_prob(act).sum(axis=-1) - (2 * (np.log(2) - act - F.softplus(-2 * act))).sum(axis=1)
        loss = -(logp * torch.as_tensor(np.linspace(0, 1, 4), dtype=torch.float32)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, p_targ in zip(net.parameters(), target.parameters()):
                p_targ.data.mul_(0.9)
                p_targ.data.add_((1 - 0.9) * p.data)
        losses += [loss.item(), pi.entropy().mean().item(), target[0].weight.sum().item()]
    return losses


@program
def written_out():
    w, b, losses = waves(2, 1).requires_grad_(True), torch.zeros(1, requires_grad=True), []
    X = waves(8, 2)
    y = torch.matmul(X, torch.tensor([2, -3.4])) + 4.2
    for _ in range(3):
        loss = (torch.matmul(X, w) + b - y.reshape(-1, 1)) ** 2 / 2
        loss.sum().backward()
        with torch.no_grad():
            for param in [w, b]:
                param -= 0.03 * param.grad / len(X)
                param.grad.zero_()
        losses.append(float(loss.mean()))
    return losses


@program
def told_to_tensorboard():
    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder)
        for i in range(3):
            writer.add_scalar("Loss/train", waves(1)[0], i)
        writer.add_histogram("w", small(2, 3)[0].weight, 0)
        writer.flush()
        writer.close()
        return [len(glob.glob(f"{folder}/events*"))]


@program
def pairs_and_triples():
    model, losses = small(4, 6, 2), []
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for loss_of in (
        lambda a, b, c: nn.TripletMarginLoss(margin=1.0)(a, b, c),
        lambda a, b, c: nn.CosineEmbeddingLoss(margin=0.1)(a, c, torch.tensor([1, -1, 1])),
        lambda a, b, c: torch.mean(0.5 * F.pairwise_distance(a, b).pow(2) + 0.5 * torch.clamp(2 - F.pairwise_distance(a, c), min=0.0)),
    ):
        loss = loss_of(model(waves(3, 4)), model(waves(3, 4, shift=1)), model(waves(3, 4, shift=2)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def at_the_centres_of_pixels():
    gradients = []
    for n in (5, 7, 13, 28):
        theta = torch.tensor([[[1.0, 0, 0], [0, 1.0, 0]]], requires_grad=True)
        grid = F.affine_grid(theta, (1, 1, n, n), align_corners=False)
        F.grid_sample(waves(1, 1, n, n), grid, align_corners=False).pow(2).sum().backward()
        gradients += theta.grad.flatten().tolist()
    return gradients


@program
def attention_by_views():
    project, losses = settled(nn.Linear(8, 24)), []
    q, k, v = (t.view(2, -1, 2, 4).transpose(1, 2) for t in project(waves(2, 6, 8)).chunk(3, -1))
    for bias in (None, causal_upper_left(6, 6), causal_lower_right(6, 6), torch.zeros(6, 6)):
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).view(2, -1, 8)
        losses.append(y.pow(2).sum().item())
    y = F.scaled_dot_product_attention(q[:, :, :3], k, v, causal_lower_right(3, 6))
    return [*losses, y.pow(2).sum().item(), *y.stride()]


@program
def convolution_of_ones_own():
    class Conv(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return F.conv2d(x, weight, stride=2, padding=1, groups=2)

        @staticmethod
        def backward(ctx, upstream):
            x, weight = ctx.saved_tensors
            by_input = conv2d_input(x.shape, weight, upstream, stride=2, padding=1, groups=2)
            return by_input, conv2d_weight(x, weight.shape, upstream, stride=2, padding=1, groups=2)

    x, weight = waves(2, 4, 6, 6).requires_grad_(), waves(6, 2, 3, 3, shift=1).requires_grad_()
    Conv.apply(x, weight).pow(3).sum().backward()
    torch._logging.set_logs(graph_breaks=False)
    return [x.grad.pow(2).sum().item(), *weight.grad[:, 0, 0, 0].tolist()]


warnings.simplefilter("ignore")

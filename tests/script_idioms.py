"""Small training programs, each written as PyTorch's users write theirs: `torch` is whatever answers to that name.

Run under gradlab.as_torch and under PyTorch by test_script_idioms.py. Nothing here is random: data and weights are sines, so that the
numbers that a program returns are the same in both.
"""

import copy
import json
import math
import sys
import tempfile
from collections import OrderedDict, deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.autograd import Variable
from torch.distributions import Categorical
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset

PROGRAMS = {}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def waves(*shape, step=0.7, shift=0.0):
    return torch.from_numpy(np.sin(np.arange(math.prod(shape)) * step + shift).astype(np.float32)).view(*shape)


def settled(model, scale=0.3):
    for i, p in enumerate(model.parameters()):
        p.data.copy_(waves(*p.shape, step=1.3, shift=i) * scale)
    return model.to(device)


class Rows(Dataset):
    def __init__(self, count, *shape):
        self.data, self.targets = waves(count, *shape).numpy(), np.arange(count) % 3

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index], int(self.targets[index])


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * 3 * 3, 3)

    def forward(self, x):
        x = F.relu(self.bn(self.conv1(x)))
        x = torch.flatten(F.max_pool2d(x, 2), 1)
        return F.log_softmax(self.fc(x), dim=1)


@program
def digits():
    model, losses = settled(Net()), []
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    loader = DataLoader(Rows(12, 1, 8, 8), batch_size=4, **{"num_workers": 0, "pin_memory": False})
    for _epoch in range(1, 3):
        model.train()
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            losses.append(F.nll_loss(output, target.to(device), reduction="sum").item())
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    return [*losses, 100.0 * correct / len(loader.dataset)]


@program
def whole_models_in_files():
    model = settled(Net()).eval()
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model, f"{folder}/model.pth")
        optimizer = optim.SGD(model.parameters(), 0.1)
        torch.save({"epoch": 3, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/c.tar")
        again = torch.load(f"{folder}/model.pth", weights_only=False, map_location=lambda storage, loc: storage)
        checkpoint = torch.load(f"{folder}/c.tar", map_location="cpu")
    x = waves(2, 1, 8, 8)
    renamed = OrderedDict((f"module.{k}", v) for k, v in checkpoint["state_dict"].items())
    holder = nn.DataParallel(Net()).eval()
    holder.load_state_dict(renamed)
    same = [(net(x) - model(x)).abs().max().item() for net in (again, holder.module)]
    return [*same, checkpoint["epoch"]]


@program
def adversaries():
    block = [nn.Linear(4, 8), nn.BatchNorm1d(8, 0.8), nn.LeakyReLU(0.2, inplace=True)]
    generator = settled(nn.Sequential(*block, nn.Linear(8, 16), nn.Tanh()))
    discriminator = settled(nn.Sequential(nn.Linear(16, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1), nn.Sigmoid()))
    loss, losses = torch.nn.BCELoss(), []
    first = optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.999))
    second = optim.Adam(discriminator.parameters(), lr=0.01, betas=(0.5, 0.999))
    FloatTensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    for i in range(4):
        valid = Variable(FloatTensor(6, 1).fill_(1.0), requires_grad=False)
        fake = Variable(FloatTensor(6, 1).fill_(0.0), requires_grad=False)
        real = Variable(waves(6, 1, 4, 4, shift=i).type(FloatTensor)).view(6, -1)
        z = Variable(FloatTensor(waves(6, 4, shift=-i).numpy()))
        first.zero_grad()
        made = generator(z)
        g_loss = loss(discriminator(made), valid)
        g_loss.backward()
        first.step()
        second.zero_grad()
        d_loss = (loss(discriminator(real), valid) + loss(discriminator(made.detach()), fake)) / 2
        d_loss.backward()
        second.step()
        losses += [g_loss.item(), d_loss.item()]
    return losses


@program
def gradient_penalty():
    critic = settled(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1)))
    optimizer, losses = optim.RMSprop(critic.parameters(), lr=0.01), []
    for _ in range(3):
        real, fake, alpha = waves(4, 5), waves(4, 5, shift=2), waves(4, 1).abs()
        between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        scores = critic(between)
        gradients = torch.autograd.grad(
            outputs=scores, inputs=between, grad_outputs=torch.ones_like(scores), create_graph=True, retain_graph=True, only_inputs=True
        )[0]
        penalty = ((gradients.view(4, -1).norm(2, dim=1) - 1) ** 2).mean()
        loss = -critic(real).mean() + critic(fake).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for p in critic.parameters():
            p.data.clamp_(-0.5, 0.5)
        losses.append(loss.item())
    return losses


@program
def letters_by_hand():
    cell, losses = settled(nn.ModuleDict({"i2h": nn.Linear(5 + 4, 4), "h2o": nn.Linear(4, 3)})), []
    for k in range(3):
        line = torch.zeros(6, 1, 5)
        for i in range(6):
            line[i][0][(i * 2 + k) % 5] = 1
        hidden = torch.zeros(1, 4)
        cell.zero_grad()
        for i in range(line.size()[0]):
            hidden = torch.tanh(cell["i2h"](torch.cat((line[i], hidden), 1)))
        output = F.log_softmax(cell["h2o"](hidden), dim=1)
        loss = nn.NLLLoss()(output, torch.tensor([k % 3], dtype=torch.long))
        loss.backward()
        for p in cell.parameters():
            p.data.add_(p.grad.data, alpha=-0.1)
        value, index = output.topk(1)
        losses += [loss.item(), value.item(), index[0].item()]
    return losses


@program
def attention_over_an_encoder():
    class Model(nn.Module):
        def __init__(self, words, size):
            super().__init__()
            self.embedding, self.encoder = nn.Embedding(words, size), nn.GRU(size, size, batch_first=True)
            self.decoder, self.attn = nn.GRU(2 * size, size, batch_first=True), nn.Linear(size, size)
            self.out = nn.Linear(size, words)

        def forward(self, source, target):
            outputs, hidden = self.encoder(self.embedding(source))
            step, made = torch.full((source.size(0), 1), 1, dtype=torch.long, device=source.device), []
            for i in range(target.size(1)):
                scores = torch.bmm(self.attn(outputs), hidden.permute(1, 2, 0)).squeeze(2)
                weights = F.softmax(scores, dim=-1).unsqueeze(1)
                context = torch.bmm(weights, outputs)
                output, hidden = self.decoder(torch.cat((self.embedding(step), context), dim=2), hidden)
                made.append(self.out(output))
                step = target[:, i].unsqueeze(1) if i % 2 else made[-1].topk(1)[1].squeeze(-1).detach()
            return torch.cat(made, dim=1)

    model, losses = settled(Model(7, 6)), []
    optimizer, criterion = optim.Adam(model.parameters(), lr=0.01), nn.CrossEntropyLoss(ignore_index=0)
    source, target = torch.arange(10).view(2, 5) % 7, torch.arange(8).view(2, 4) % 7
    for _ in range(3):
        optimizer.zero_grad()
        loss = criterion(model(source, target).view(-1, 7), target.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def language_model():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
            self.encoder, self.body, self.head = nn.Embedding(11, 8), nn.TransformerEncoder(layer, 2), nn.Linear(8, 11)
            pe, position = torch.zeros(20, 8), torch.arange(0, 20, dtype=torch.float).unsqueeze(1)
            div_term = torch.exp(torch.arange(0, 8, 2).float() * (-math.log(10000.0) / 8))
            pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div_term), torch.cos(position * div_term)
            self.register_buffer("pe", pe.unsqueeze(0).transpose(0, 1))

        def forward(self, src):
            mask = torch.log(torch.tril(torch.ones(len(src), len(src))))
            hidden = self.encoder(src) * math.sqrt(8) + self.pe[: src.size(0), :]
            return F.log_softmax(self.head(self.body(hidden, mask=mask)), dim=-1)

    model, losses, lr = settled(Model()), [], 0.1
    data = (torch.arange(60) * 7 % 11).narrow(0, 0, 60).view(3, -1).t().contiguous()
    model.train()
    for i in range(0, 12, 6):
        inputs, targets = data[i : i + 6], data[i + 1 : i + 7].reshape(-1)
        model.zero_grad()
        loss = nn.NLLLoss()(model(inputs).view(-1, 11), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        losses.append(loss.item())
    return losses


@program
def spatial_transformer():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.loc, self.out = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, stride=2), nn.ReLU(True)), nn.Linear(64, 3)
            self.fc_loc = nn.Sequential(nn.Linear(2 * 3 * 3, 3 * 2))

        def forward(self, x):
            theta = self.fc_loc(self.loc(x).view(-1, 2 * 3 * 3)).view(-1, 2, 3)
            x = F.grid_sample(x, F.affine_grid(theta, x.size(), align_corners=False), align_corners=False)
            return F.log_softmax(self.out(x.view(-1, 64)), dim=1)

    model = settled(Model())
    model.fc_loc[0].weight.data.zero_()
    model.fc_loc[0].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
    optimizer, losses = optim.SGD(model.parameters(), lr=0.01), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.nll_loss(model(waves(3, 1, 8, 8)), torch.tensor([0, 1, 2]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def attack():
    model, data, target = settled(Net()).eval(), waves(2, 1, 8, 8), torch.LongTensor([0, 2])
    data.requires_grad = True
    loss = F.nll_loss(model(data), target)
    model.zero_grad()
    loss.backward()
    perturbed = torch.clamp(data + 0.1 * data.grad.data.sign(), -1, 1)
    return [loss.item(), F.nll_loss(model(perturbed), target).item()]


@program
def values_of_actions():
    policy, memory, losses = settled(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))), deque([], maxlen=50), []
    target = copy.deepcopy(policy)
    target.load_state_dict(policy.state_dict())
    optimizer = optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    for i in range(8):
        state = torch.tensor(waves(4, shift=i).numpy(), dtype=torch.float32, device=device).unsqueeze(0)
        with torch.no_grad():
            action = policy(state).max(1).indices.view(1, 1)
        following = None if i % 4 == 3 else state + 1
        memory.append((state, action, following, torch.tensor([float(i)], device=device)))
    for _ in range(3):
        states, actions, after, rewards = zip(*memory)
        mask = torch.tensor(tuple(map(lambda s: s is not None, after)), device=device, dtype=torch.bool)
        chosen = policy(torch.cat(states)).gather(1, torch.cat(actions))
        values = torch.zeros(len(memory), device=device)
        with torch.no_grad():
            values[mask] = target(torch.cat([s for s in after if s is not None])).max(1).values
        loss = nn.SmoothL1Loss()(chosen, (values * 0.9 + torch.cat(rewards)).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        soft, hard = target.state_dict(), policy.state_dict()
        for key in hard:
            soft[key] = hard[key] * 0.1 + soft[key] * 0.9
        target.load_state_dict(soft)
        losses.append(loss.item())
    return losses


@program
def policy_gradients():
    actor, critic = settled(nn.Linear(4, 3)), settled(nn.Linear(4, 1))
    optimizer, losses = optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-2, eps=1e-5), []
    obs, actions = waves(8, 4), torch.arange(8) % 3
    with torch.no_grad():
        before = Categorical(logits=actor(obs)).log_prob(actions)
        rewards, advantages, last = waves(8, step=0.3), torch.zeros(8), 0
        values = critic(obs).flatten()
        for t in reversed(range(7)):
            delta = rewards[t] + 0.99 * values[t + 1] - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * last
    for start in range(0, 8, 4):
        at = np.arange(8)[start : start + 4]
        dist = Categorical(logits=actor(obs[at]))
        ratio = (dist.log_prob(actions.long()[at]) - before[at]).exp()
        adv = (advantages[at] - advantages[at].mean()) / (advantages[at].std() + 1e-8)
        pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
        v_loss = 0.5 * ((critic(obs[at]).view(-1) - (advantages + values)[at]) ** 2).mean()
        loss = pg_loss - 0.01 * dist.entropy().mean() + v_loss * 0.5
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
        optimizer.step()
        losses += [loss.item(), float(norm), ((ratio - 1.0).abs() > 0.2).float().mean().item()]
    return losses


if __name__ == "__main__":
    import script_idioms_more

    json.dump({name: [float(x) for x in function()] for name, function in (PROGRAMS | script_idioms_more.PROGRAMS).items()}, sys.stdout)

"""A convolutional network on handwritten digits, with data loaders, dropout and a learning rate schedule.

python examples/mnist_cnn.py --epochs 10
"""

import argparse

import gradlab as torch
import gradlab.nn.functional as F
from gradlab import nn, optim
from gradlab.optim.lr_scheduler import StepLR
from gradlab.utils.data import DataLoader, TensorDataset

import sources


class Net(nn.Module):
    def __init__(self, dropout=0.25):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, 1, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, 1, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.dropout1 = nn.Dropout2d(dropout)
        self.dropout2 = nn.Dropout(2 * dropout)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.norm(self.conv2(x)))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        return F.log_softmax(self.fc2(x), dim=1)


def build(args):
    return Net(args.dropout)


def loaders(args):
    (x, y), (test_x, test_y) = sources.images()
    train_set = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    test_set = TensorDataset(torch.from_numpy(test_x), torch.from_numpy(test_y))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    return train_loader, DataLoader(test_set, batch_size=256)


@torch.no_grad()
def test(model, device, loader):
    model.eval()
    loss, correct = 0.0, 0
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        output = model(data)
        loss += F.nll_loss(output, target, reduction="sum").item()
        pred = output.argmax(dim=1, keepdim=True)
        correct += pred.eq(target.view_as(pred)).sum().item()
    print(f"test: average loss {loss / len(loader.dataset):.4f}, accuracy {correct}/{len(loader.dataset)}")


def train(model, args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model.to(device)
    train_loader, test_loader = loaders(args)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    losses = []
    for epoch in range(1, args.epochs + 1):
        model.train()
        for batch, (data, target) in enumerate(train_loader):
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            output = model(data)
            loss = F.nll_loss(output, target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if batch % args.log_interval == 0:
                print(f"epoch {epoch} [{batch * len(data)}/{len(train_loader.dataset)}] loss {loss.item():.6f}")
            if args.steps and len(losses) >= args.steps:
                return losses
        test(model, device, test_loader)
        scheduler.step()
    if args.save:
        torch.save(model.state_dict(), args.save)
    return losses


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many batches (0: after all epochs)")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--dropout", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--save", help="write the trained weights to this file")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    torch.manual_seed(args.seed)
    return train(build(args), args)


if __name__ == "__main__":
    main()

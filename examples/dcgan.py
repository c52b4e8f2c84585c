"""A deep convolutional generative adversarial network that draws digits (Radford, Metz and Chintala, 2015).

python examples/dcgan.py --epochs 20
"""

import argparse

import gradlab as torch
import gradlab.nn as nn
import gradlab.optim as optim
from gradlab.utils.data import DataLoader, TensorDataset

import sources


def weights_init(module):
    """Small random weights, as the paper has them."""
    name = module.__class__.__name__
    if name.find("Conv") != -1:
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif name.find("BatchNorm") != -1:
        nn.init.normal_(module.weight.data, 1.0, 0.02)
        nn.init.zeros_(module.bias)


class Generator(nn.Module):
    def __init__(self, nz=16, ngf=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 2, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, ndf=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 2, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input):
        return self.main(input).view(-1, 1).squeeze(1)


def build(args):
    pair = nn.ModuleDict({"g": Generator(args.nz), "d": Discriminator()})
    return pair.apply(weights_init)


def train(pair, args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    netG, netD = pair["g"].to(device), pair["d"].to(device)
    (x, _), _ = sources.images()
    loader = DataLoader(TensorDataset(torch.from_numpy(2 * x - 1)), batch_size=args.batch_size, shuffle=True, drop_last=True)
    criterion = nn.BCELoss()
    optimizerD = optim.Adam(netD.parameters(), lr=args.lr, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=args.lr, betas=(0.5, 0.999))
    real_label, fake_label = 1.0, 0.0
    losses = []
    for epoch in range(1, args.epochs + 1):
        for (real,) in loader:
            # The discriminator: real pictures first, then drawn ones.
            netD.zero_grad()
            real = real.to(device)
            label = torch.full((real.size(0),), real_label, dtype=real.dtype, device=device)
            errD_real = criterion(netD(real), label)
            errD_real.backward()
            noise = torch.randn(real.size(0), args.nz, 1, 1, device=device)
            fake = netG(noise)
            label.fill_(fake_label)
            errD_fake = criterion(netD(fake.detach()), label)
            errD_fake.backward()
            optimizerD.step()
            # The generator: it wants its pictures to be taken for real ones.
            netG.zero_grad()
            label.fill_(real_label)
            errG = criterion(netD(fake), label)
            errG.backward()
            optimizerG.step()
            losses.append((errD_real + errD_fake).item() + errG.item())
            if args.steps and len(losses) >= args.steps:
                return losses
        print(f"epoch {epoch} discriminator {(errD_real + errD_fake).item():.4f} generator {errG.item():.4f}")
    return losses


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many batches (0: after all epochs)")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--nz", type=int, default=16, help="size of the noise that a picture is drawn from")
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    torch.manual_seed(args.seed)
    return train(build(args), args)


if __name__ == "__main__":
    main()

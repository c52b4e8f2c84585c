"""A variational autoencoder of handwritten digits (Kingma and Welling, 2013).

python examples/vae.py --epochs 30
"""

import argparse

import gradlab as torch
from gradlab import nn, optim
from gradlab.nn import functional as F
from gradlab.utils.data import DataLoader, TensorDataset

import sources


class VAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.fc1 = nn.Linear(64, 128)
        self.fc21 = nn.Linear(128, latent)
        self.fc22 = nn.Linear(128, latent)
        self.fc3 = nn.Linear(latent, 128)
        self.fc4 = nn.Linear(128, 64)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc21(h), self.fc22(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    """The negative evidence lower bound: the error of the reconstruction, and the distance from the prior."""
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def build(args):
    return VAE(args.latent)


def train(model, args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    (x, _), (test_x, _) = sources.images()
    loader = DataLoader(TensorDataset(torch.from_numpy(x)), batch_size=args.batch_size, shuffle=True)
    held_out = torch.from_numpy(test_x).to(device)
    model.to(device)
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for epoch in range(1, args.epochs + 1):
        model.train()
        for (data,) in loader:
            data = data.to(device)
            optimizer.zero_grad(set_to_none=True)
            recon, mu, logvar = model(data)
            loss = loss_function(recon, data, mu, logvar)
            loss.backward()
            optimizer.step()
            losses.append(loss.item() / len(data))
            if args.steps and len(losses) >= args.steps:
                return losses
        model.eval()
        with torch.no_grad():
            recon, mu, logvar = model(held_out)
            bound = loss_function(recon, held_out, mu, logvar).item()
        print(f"epoch {epoch} train {losses[-1]:.3f} test {bound / len(held_out):.3f}")
    with torch.no_grad():
        show(model.decode(torch.randn(4, args.latent, device=device)).cpu().view(4, 8, 8))
    return losses


def show(pictures):
    for row in torch.cat(list(pictures), dim=1).tolist():
        print("".join(" .:-=+*#%@"[min(int(v * 10), 9)] * 2 for v in row))


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many batches (0: after all epochs)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--latent", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    torch.manual_seed(args.seed)
    return train(build(args), args)


if __name__ == "__main__":
    main()

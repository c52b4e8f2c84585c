"""A character-level LSTM on lines of different lengths, as packed sequences; then it writes lines of its own.

python examples/char_rnn.py --epochs 60
"""

import argparse

import gradlab as torch
from gradlab import nn
from gradlab.nn.utils import clip_grad_norm_
from gradlab.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from gradlab.utils.data import DataLoader, Dataset

import sources

PAD = 0


class Lines(Dataset):
    """Each line as (characters, the characters that follow); 1 is the line's end, 0 is padding."""

    def __init__(self):
        self.lines = sources.lines()
        self.characters = sorted(set("".join(self.lines)))
        self.number = {c: i + 2 for i, c in enumerate(self.characters)}
        self.vocabulary = len(self.characters) + 2

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        codes = [1, *(self.number[c] for c in self.lines[index]), 1]
        return torch.tensor(codes[:-1]), torch.tensor(codes[1:])

    def decode(self, codes):
        return "".join(self.characters[c - 2] for c in codes if c > 1)


def collate(batch):
    inputs, targets = zip(*batch)
    lengths = torch.tensor([len(line) for line in inputs])
    return pad_sequence(inputs, batch_first=True, padding_value=PAD), pad_sequence(targets, batch_first=True, padding_value=PAD), lengths


class CharRNN(nn.Module):
    def __init__(self, vocabulary, width=32, hidden=64, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.lstm = nn.LSTM(width, hidden, num_layers=layers, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)

    def forward(self, tokens, lengths, state=None):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        output, state = self.lstm(packed, state)
        output, _ = pad_packed_sequence(output, batch_first=True, total_length=tokens.size(1))
        return self.decoder(output), state


def build(args):
    return CharRNN(Lines().vocabulary, hidden=args.hidden)


@torch.no_grad()
def sample(model, data, length=60, temperature=0.7):
    model.eval()
    device = next(model.parameters()).device
    token, state, written = torch.tensor([[1]], device=device), None, []
    for _ in range(length):
        logits, state = model(token, torch.tensor([1]), state)
        probabilities = torch.softmax(logits[0, -1] / temperature, dim=-1)
        token = torch.multinomial(probabilities, 1).view(1, 1)
        if token.item() <= 1:
            break
        written.append(token.item())
    return data.decode(written)


def train(model, args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model.to(device)
    data = Lines()
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, collate_fn=collate)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for epoch in range(1, args.epochs + 1):
        model.train()
        for inputs, targets, lengths in loader:
            inputs, targets = inputs.to(device), targets.to(device)  # the lengths stay on the CPU
            optimizer.zero_grad()
            logits, _ = model(inputs, lengths)
            loss = criterion(logits.transpose(1, 2), targets)
            loss.backward()
            norm = clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            losses.append(loss.item())
            if args.steps and len(losses) >= args.steps:
                return losses
        if epoch % 10 == 0:
            print(f"epoch {epoch} loss {losses[-1]:.4f} gradient norm {norm.item():.3f} | {sample(model, data)}")
    return losses


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many batches (0: after all epochs)")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    torch.manual_seed(args.seed)
    return train(build(args), args)


if __name__ == "__main__":
    main()

"""A mel filterbank that trains: which of three instruments plays a note is heard from the spectrum's envelope.

Notes are sums of harmonics whose strengths are the instrument's. A spectrogram's power goes through a matrix of triangular filters,
equally far apart on the mel scale (S. S. Stevens, J. Volkmann, E. B. Newman, 1937), which starts as a phone's front end would have it and
is then trained together with the classifier.

    python examples/mel_filters.py
"""

from __future__ import annotations

import gradlab as gl
from gradlab import nn

RATE, LENGTH, FILTERS = 8000, 1024, 24
STRENGTHS = ((1.0, 0.5, 0.25, 0.12, 0.06), (1.0, 0.05, 0.6, 0.05, 0.4), (0.3, 1.0, 0.3, 0.8, 0.3))


def notes(count: int) -> tuple[gl.Tensor, gl.Tensor]:
    """Signals (count, LENGTH) of random pitch and phase with some noise, and which instrument plays each."""
    player = gl.randint(0, 3, (count,))
    pitch = 110 * 2 ** (2 * gl.rand(count, 1))
    time = gl.arange(LENGTH) / RATE
    harmonic = gl.arange(1, 6).reshape(5, 1, 1)
    waves = gl.sin(2 * gl.pi * harmonic * pitch * time + 6.3 * gl.rand(5, count, 1))
    strength = gl.tensor(STRENGTHS)[player].T.unsqueeze(-1)
    return (waves * strength).sum(0) + 0.3 * gl.randn(count, LENGTH), player


def mel_filters(bins: int) -> gl.Tensor:
    """Triangles (bins, FILTERS): filter k rises from the k-th of FILTERS + 2 frequencies to the next and falls to the one after."""
    top = 2595 * gl.log10(gl.tensor(1 + RATE / 2 / 700))
    edges = 700 * (10 ** (gl.linspace(0, 1, FILTERS + 2) * top / 2595) - 1)
    frequency = gl.linspace(0, RATE / 2, bins).unsqueeze(1)
    rising = (frequency - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequency) / (edges[2:] - edges[1:-1])
    return gl.minimum(rising, falling).clamp(min=0)


class Listener(nn.Module):
    """Spectrogram, filters, logarithm, mean over time, one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", gl.hann_window(256))
        self.filters = nn.Parameter(mel_filters(129))
        self.classes = nn.Linear(FILTERS, 3)

    def forward(self, signal: gl.Tensor) -> gl.Tensor:
        spectrum = gl.stft(signal, 256, 128, window=self.window, return_complex=True)
        power = spectrum.real**2 + spectrum.imag**2
        heard = (power.transpose(1, 2) @ self.filters.clamp(min=0) + 1e-4).log()
        return self.classes(heard.mean(1))


def main(steps: int = 150) -> float:
    """Train, and return the share of new notes that are heard right."""
    gl.manual_seed(0)
    model = Listener()
    optimizer = gl.optim.Adam([{"params": [model.filters], "lr": 0.01}, {"params": model.classes.parameters(), "lr": 0.05}])
    start = model.filters.detach().clone()
    for step in range(steps):
        signal, player = notes(64)
        loss = nn.functional.cross_entropy(model(signal), player)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step:3d}: loss {loss.item():.3f}")
    signal, player = notes(600)
    with gl.no_grad():
        right = (model(signal).argmax(1) == player).float().mean().item()
    moved = (model.filters.detach() - start).abs().max().item()
    print(f"{right:.1%} of 600 new notes are heard right; the filters moved by up to {moved:.2f}")
    return right


if __name__ == "__main__":
    main()

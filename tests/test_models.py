"""The models in gradlab.models: sizes, shapes, one step of learning, what they refuse. How they train: test_models_trained.py."""

import importlib
import re
import subprocess
import sys

import pytest

import gradlab as gl
from gradlab import models, nn
from gradlab.models import GPT, GPTConfig, resnet20
from gradlab.nn import functional as F


def learns(net, x, y):
    """Whether a few steps on one batch lower its loss."""
    optimizer = gl.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x).reshape(-1, 10), y.reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[-1] < losses[0]


def test_resnet20():
    gl.manual_seed(0)
    net = resnet20()
    assert sum(p.numel() for p in net.parameters()) == 269_722
    x = gl.randn(4, 3, 16, 16)
    assert net(x).shape == (4, 10)
    assert learns(net, x, gl.tensor([0, 1, 2, 3]))


def test_gpt():
    gl.manual_seed(0)
    assert sum(p.numel() for p in GPT().parameters()) == 826_368
    net = GPT(GPTConfig(vocab_size=10, block_size=8, n_layer=2, n_head=2, n_embd=16, dropout=0.1))
    tokens = gl.randint(0, 10, (3, 9))
    assert learns(net, tokens[:, :-1], tokens[:, 1:])
    net.eval()
    with gl.no_grad():
        whole = net(tokens[:, :8])
        assert gl.allclose(net(tokens[:, :5]), whole[:, :5], atol=1e-5)  # earlier tokens do not see later ones
    with pytest.raises(ValueError, match="block_size"):
        net(tokens)
    with pytest.raises(ValueError, match="divisible"):
        GPTConfig(n_embd=10, n_head=3)


# What is known of them: the papers, torchvision 0.24 (resnet18, resnet34) and timm 1.0 (vit_tiny_patch16_224).
SIZES = {
    "LeNet": (lambda: models.LeNet(), 61_706),
    "MobileNet": (lambda: models.MobileNet(), 4_231_976),
    "resnet18": (lambda: models.resnet18(), 11_689_512),
    "resnet34": (lambda: models.resnet34(), 21_797_672),
    "vit_tiny": (lambda: models.vit_tiny(), 5_717_416),
    "GCN": (lambda: models.GCN(1433, 16, 7), 23_063),  # of the citations of section 5.1
    "GAT": (lambda: models.GAT(1433, 8, 7), 92_373),  # section 3.3, with biases; their second layer's scores take 14
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_papers(name):
    make, size = SIZES[name]
    assert sum(p.numel() for p in make().parameters()) == size


def test_every_model_has_an_example_and_names_its_paper():
    for family, names in models._FAMILIES.items():
        module = importlib.import_module(f"gradlab.models.{family}")
        docs = [module.__doc__, *(getattr(module, name).__doc__ for name in names)]
        assert all(docs) and ">>>" in "".join(docs), family
        assert family == "digits" or re.search(r"\b(19|20)\d\d\b", "".join(docs)), family  # the year of one


def test_every_name_is_found_where_it_says():
    for family, names in models._FAMILIES.items():
        assert set(names) <= vars(importlib.import_module(f"gradlab.models.{family}")).keys()
    assert sorted(models.__all__) == sorted(models._HOME) and set(models.__all__) <= set(dir(models))
    with pytest.raises(AttributeError, match="Alexnet"):
        models.Alexnet


def test_a_family_is_loaded_when_it_is_asked_for():
    program = "import sys; from gradlab.models.table import TableModel; print(sum(m.startswith('gradlab.models.') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip() == "1"


REFUSED = [
    (lambda: models.LeNet(size=8), "at least 12×12"),
    (lambda: models.LeNet()(gl.zeros(1, 1, 8, 8)), "28×28"),
    (lambda: models.UNet(depth=2)(gl.zeros(1, 1, 10, 8)), "10×8 cannot be halved 2 times"),
    (lambda: models.ViT(image_size=10, patch_size=4), "image_size=10"),
    (lambda: models.ViT(8, 2, dim=12)(gl.zeros(1, 3, 4, 4)), "8×8"),
    (lambda: models.TransformerClassifier(9, 2, max_length=4)(gl.ones(1, 5, dtype=gl.int64)), "5 tokens"),
    (lambda: models.GCN(3, 4, 2)(gl.zeros(4, 3), gl.zeros(3, 2, dtype=gl.int64)), r"int64 \[2, edges\]"),
    (lambda: models.GAT(3, 4, 2)(gl.zeros(4, 3), gl.zeros(2, 5)), "float32"),
    (lambda: models.knn_graph(gl.zeros(3, 2), 3), "k=3"),
    (lambda: models.DCGAN(size=12), "not 12"),
    (lambda: models.NoisePredictor(width=12), "multiple of 8"),
    (lambda: models.NoisePredictor(depth=2)(gl.zeros(1, 1, 6, 8), gl.zeros(1, dtype=gl.int64)), "6×8"),
    (lambda: models.DDPM(nn.Identity(), (1, 8, 8), schedule="sine"), "schedule='sine'"),
    (lambda: models.DDPM(nn.Identity(), (1, 8, 8), steps=10).sample(1, steps=11), "steps are 1 to 10"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_what_is_refused_says_why(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_graph_layers_are_what_their_papers_say():
    """Beside matrices: D^-1/2 (A + 1) D^-1/2 x W, and a softmax of scores over neighbours. Edges to oneself count once."""
    gl.manual_seed(0)
    x, n = gl.randn(5, 3), 5
    edges = gl.tensor([[0, 1, 1, 2, 3, 4, 2], [1, 0, 2, 1, 4, 3, 2]])
    a = gl.eye(n)
    a[edges[1], edges[0]] = 1.0
    conv = models.GCNConv(3, 4)
    d = a.sum(1).rsqrt()
    assert gl.allclose(conv(x, edges), (d[:, None] * a * d) @ conv.lin(x) + conv.bias, atol=1e-6)
    weights = gl.tensor([2.0, 2.0, 0.5, 0.5, 1.0, 1.0, 9.0])
    w = gl.eye(n)
    w[edges[1, :6], edges[0, :6]] = weights[:6]
    d = w.sum(1).rsqrt()
    assert gl.allclose(conv(x, edges, weights), (d[:, None] * w * d) @ conv.lin(x) + conv.bias, atol=1e-6)
    attention = models.GATConv(3, 4, heads=2)
    h = attention.lin(x).view(n, 2, 4)
    scores = F.leaky_relu((h * attention.att_dst).sum(2)[:, None] + (h * attention.att_src).sum(2)[None], 0.2)
    share = scores.masked_fill(a[:, :, None] == 0, float("-inf")).softmax(1)
    expected = gl.einsum("ijh,jhc->ihc", share, h).flatten(1) + attention.bias
    assert gl.allclose(attention(x, edges), expected, atol=1e-6)


def test_padding_changes_nothing():
    gl.manual_seed(0)
    net = models.TransformerClassifier(20, 3, d_model=16, dim_feedforward=32, max_length=8).eval()
    tokens = gl.randint(1, 20, (2, 5))
    with gl.no_grad():
        assert gl.allclose(net(tokens), net(F.pad(tokens, (0, 3))), atol=1e-6)
        assert net(gl.zeros(1, 4, dtype=gl.int64)).isfinite().all()


def test_the_way_back_from_noise():
    """With the noise known, the implicit sampler comes back to the picture, in any number of steps."""
    picture = gl.linspace(-0.9, 0.9, 64).view(1, 1, 8, 8)

    class Known(nn.Module):
        def forward(self, x, steps):
            kept = ddpm.kept[steps][:, None, None, None]
            return (x - kept.sqrt() * picture) / (1 - kept).sqrt()

    for schedule in ("cosine", "linear"):
        ddpm = models.DDPM(Known(), (1, 8, 8), steps=50, schedule=schedule)
        assert ddpm.kept[0] > 0.97 and ddpm.kept[-1] < 0.02 and (ddpm.kept.diff() < 0).all()
        for steps, eta in ((50, 1.0), (7, 0.0), (1, 0.0)):
            assert gl.allclose(ddpm.sample(3, steps, eta), picture.expand(3, -1, -1, -1), atol=1e-3)

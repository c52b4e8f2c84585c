"""Graph networks by message passing: what a node's neighbours say is gathered along the edges, weighed, and added up at the node.

GCN: Kipf and Welling, "Semi-supervised classification with graph convolutional networks" (2016). GAT: Veličković and others, "Graph
attention networks" (2017). Edges are int64 [2, edges], sources in the first row and targets in the second; an edge that goes both ways is
there twice. Every node hears itself too: such edges need not be given, and count once if they are. Parameters are named as in PyTorch
Geometric, whose layers compute the same.
"""

from __future__ import annotations

import itertools

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.nn import functional as F


def knn_graph(x: Tensor, k: int) -> Tensor:
    """Edges to each row of float [nodes, features] from the `k` rows nearest to it: int64 [2, nodes * k]. ValueError unless 0 < k < nodes.

    >>> import gradlab as gl
    >>> gl.models.knn_graph(gl.tensor([[0.0], [1.0], [3.0]]), 1)
    tensor([[1, 0, 1],
            [0, 1, 2]])
    """
    nodes = x.shape[0]
    if not 0 < k < nodes:
        raise ValueError(f"knn_graph: k has to be at least 1 and less than the number of nodes, {nodes}; got k={k}")
    distance = gl.cdist(x, x)
    distance.fill_diagonal_(float("inf"))
    nearest = distance.topk(k, largest=False).indices
    targets = gl.arange(nodes, device=x.device)[:, None].expand(nodes, k)
    return gl.stack([nearest.reshape(-1), targets.reshape(-1)])


def with_loops(name: str, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sources and targets with each node's own edge at the end, and which edges count: not those that are such already."""
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.dtype != gl.int64:
        got = f"{edge_index.dtype} of shape {tuple(edge_index.shape)}"
        raise ValueError(f"{name}: edge_index is int64 [2, edges], sources and targets; got {got}")
    own = gl.arange(x.shape[0], device=x.device)
    source, target = edge_index[0], edge_index[1]
    counts = gl.cat([source != target, own >= 0])
    return gl.cat([source, own]), gl.cat([target, own]), counts


class GCNConv(nn.Module):
    """float32 [nodes, inputs] and edges to float32 [nodes, outputs]: a linear map, then a mean over neighbours.

    An edge weighs 1 / sqrt(degree of its source * degree of its target), degrees being the numbers of edges that end at a node; with
    `edge_weight`, float32 [edges], they are sums of weights, which the edge's own multiplies.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lin = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(gl.zeros(outputs))
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        source, target, counts = with_loops("GCNConv", x, edge_index)
        weight = counts.to(x.dtype)
        if edge_weight is not None:
            weight = weight * gl.cat([edge_weight, x.new_ones(x.shape[0])])
        degree = x.new_zeros(x.shape[0]).index_add(0, target, weight)
        scale = degree.rsqrt()
        weight = scale[source] * weight * scale[target]
        messages = self.lin(x)[source]
        messages = messages * weight.unsqueeze(1).to(messages.dtype)
        return messages.new_zeros(x.shape[0], messages.shape[1]).index_add(0, target, messages) + self.bias


class GATConv(nn.Module):
    """float32 [nodes, inputs] and edges to float32 [nodes, heads * outputs], or the heads' mean [nodes, outputs] where `concat` is False.

    The weights of the edges that end at a node are a softmax of scores that both of their ends give.
    """

    def __init__(self, inputs: int, outputs: int, heads: int = 1, concat: bool = True, slope: float = 0.2, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.outputs, self.concat, self.slope, self.dropout = heads, outputs, concat, slope, dropout
        self.lin = nn.Linear(inputs, heads * outputs, bias=False)
        self.att_src = nn.Parameter(gl.empty(1, heads, outputs))
        self.att_dst = nn.Parameter(gl.empty(1, heads, outputs))
        self.bias = nn.Parameter(gl.zeros(heads * outputs if concat else outputs))
        for parameter in (self.lin.weight, self.att_src, self.att_dst):
            nn.init.xavier_uniform_(parameter)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        nodes = x.shape[0]
        source, target, counts = with_loops("GATConv", x, edge_index)
        h = self.lin(x).view(nodes, self.heads, self.outputs)
        scores = F.leaky_relu((h * self.att_src).sum(2)[source] + (h * self.att_dst).sum(2)[target], self.slope)
        scores = scores.masked_fill(~counts.unsqueeze(1), float("-inf"))
        # A softmax over the edges that end at the same node, of scores that are at most zero.
        place = target.unsqueeze(1).expand(-1, self.heads)
        largest = scores.detach().new_full((nodes, self.heads), float("-inf")).scatter_reduce(0, place, scores.detach(), "amax")
        share = (scores - largest[target]).exp()
        share = share / share.new_zeros(nodes, self.heads).index_add(0, target, share)[target]
        share = F.dropout(share, self.dropout, self.training)
        messages = (h[source] * share.unsqueeze(2)).flatten(1)
        found = messages.new_zeros(nodes, self.heads * self.outputs).index_add(0, target, messages)
        return (found if self.concat else found.view(nodes, self.heads, self.outputs).mean(1)) + self.bias


class GCN(nn.Module):
    """float32 [nodes, inputs] and edges int64 [2, edges] to float32 [nodes, outputs], through `layers` convolutions with ReLU and dropout.

    >>> import gradlab as gl
    >>> net = gl.models.GCN(3, 16, 2)
    >>> net(gl.randn(4, 3), gl.tensor([[0, 1, 2], [1, 2, 3]])).shape
    (4, 2)
    """

    def __init__(self, inputs: int, hidden: int, outputs: int, layers: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        sizes = [inputs, *[hidden] * (layers - 1), outputs]
        self.convs = nn.ModuleList([GCNConv(a, b) for a, b in itertools.pairwise(sizes)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        for i, conv in enumerate(self.convs):
            x = conv(self.dropout(F.relu(x) if i else x), edge_index, edge_weight)
        return x


class GAT(nn.Module):
    """float32 [nodes, inputs] and edges int64 [2, edges] to float32 [nodes, outputs], through `layers` attentions with ELU and dropout.

    Each but the last has `heads` heads of `hidden` numbers side by side; the last has one.

    >>> import gradlab as gl
    >>> net = gl.models.GAT(3, 8, 2, heads=4)
    >>> net(gl.randn(4, 3), gl.tensor([[0, 1, 2], [1, 2, 3]])).shape
    (4, 2)
    """

    def __init__(self, inputs: int, hidden: int, outputs: int, layers: int = 2, heads: int = 8, dropout: float = 0.6) -> None:
        super().__init__()
        sizes = [inputs, *[hidden * heads] * (layers - 1)]
        convs = [GATConv(size, hidden, heads, dropout=dropout) for size in sizes[:-1]]
        self.convs = nn.ModuleList([*convs, GATConv(sizes[-1], outputs, concat=False, dropout=dropout)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for i, conv in enumerate(self.convs):
            x = conv(self.dropout(F.elu(x) if i else x), edge_index)
        return x

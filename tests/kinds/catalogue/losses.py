"""Losses of `nn.functional`."""

from __future__ import annotations

import numpy as np

from kinds.catalogue.giving import B, P, Q, X, Y, fixed, given, integers, normal

SIGNS = np.array([1, -1, 1])
CLASSES = np.array([1, 3, 0])
TWO = B.astype(np.float64)
LOG = np.log(P / P.sum(1, keepdims=True))
FRAMES = np.log(np.abs(normal(6, 2, 4)) + 0.1)
WEIGHTS = fixed([0.5, 1.0, 2.0, 1.5])
ANCHORS = (X, Y, P)

CALLS = {
    "F.mse_loss": [given(X, Y), given(X, Y, reduction="none")], "F.l1_loss": [given(X, Y), given(X, Y, reduction="sum")],
    "F.smooth_l1_loss": [given(X, Y)], "F.huber_loss": [given(X, Y)], "F.poisson_nll_loss": [given(X, fixed(P * 3))],
    "F.gaussian_nll_loss": [given(X, Y, P), given(X, Y, 0.7)], "F.kl_div": [given(LOG, Q / Q.sum(1, keepdims=True), reduction="batchmean")],
    "F.cross_entropy": [given(X, CLASSES), given(X, CLASSES, WEIGHTS, label_smoothing=0.1), given(X, Q / Q.sum(1, keepdims=True))],
    "F.nll_loss": [given(LOG, CLASSES), given(LOG, CLASSES, WEIGHTS)],
    "F.binary_cross_entropy": [given(P, fixed(TWO)), given(P, fixed(TWO), fixed(Q))],
    "F.binary_cross_entropy_with_logits": [given(X, fixed(TWO)), given(X, fixed(TWO), pos_weight=fixed(Q))],
    "F.ctc_loss": [given(FRAMES, integers(1, 4, 2, 2), np.array([6, 5]), np.array([2, 2]))],
    "F.cosine_embedding_loss": [given(X, Y, SIGNS)], "F.hinge_embedding_loss": [given(X, fixed(TWO * 2 - 1))],
    "F.margin_ranking_loss": [given(X, Y, fixed(TWO * 2 - 1))], "F.soft_margin_loss": [given(X, fixed(TWO * 2 - 1))],
    "F.multi_margin_loss": [given(X, CLASSES), given(X, CLASSES, weight=WEIGHTS)],
    "F.multilabel_margin_loss": [given(X, np.array([[1, 3, -1, 0], [0, -1, 1, 2], [2, 1, 0, -1]]))],
    "F.multilabel_soft_margin_loss": [given(X, fixed(TWO)), given(X, fixed(TWO), WEIGHTS)],
    "F.triplet_margin_loss": [given(*ANCHORS)], "F.triplet_margin_with_distance_loss": [given(*ANCHORS)],
    "gl.kl_div": [given(LOG, Q / Q.sum(1, keepdims=True))],
    "gl.poisson_nll_loss": [given(X, fixed(P * 3), True, False, 1e-8, 1)], "gl.binary_cross_entropy_with_logits": [given(X, fixed(TWO))],
    "gl.ctc_loss": [given(FRAMES, integers(1, 4, 2, 2), np.array([6, 5]), np.array([2, 2]))],
    "gl.cosine_embedding_loss": [given(X, Y, SIGNS)], "gl.hinge_embedding_loss": [given(X, fixed(TWO * 2 - 1))],
    "gl.margin_ranking_loss": [given(X, Y, fixed(TWO * 2 - 1))], "gl.triplet_margin_loss": [given(*ANCHORS)],
}  # fmt: skip

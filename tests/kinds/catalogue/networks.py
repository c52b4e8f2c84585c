"""`nn.functional`: layers, norms, pools, dropout, attention, pictures."""

from __future__ import annotations

import numpy as np

from kinds.catalogue.giving import CUBE, PLACES, V, X, Y, distinct, fixed, given, normal, uniform, words

LINE, IMAGE, VOLUME = distinct(2, 4, 6, gap=0.07), distinct(2, 4, 4, 6, gap=0.03), distinct(1, 2, 3, 4, 4, gap=0.05)
K1, K2, K3 = normal(3, 4, 3, scale=0.5), normal(3, 4, 3, 3, scale=0.3), normal(3, 2, 2, 2, 2, scale=0.5)
BIAS = normal(3)
PAIRED = {"weight": normal(4) + 1, "bias": normal(4, seed=1)}
MEAN, VARIANCE = fixed(normal(4, seed=2)), fixed(uniform(0.5, 2, 4))
GRID = uniform(-0.9, 0.9, 2, 3, 3, 2)
GRID_3 = uniform(-0.9, 0.9, 1, 2, 2, 3, 3)
IDS = np.array([[1, 4, 2], [0, 3, 3]])
TABLE = normal(5, 4)
ENDS, ENDS_8 = np.array([1, 3], np.int32), np.array([3, 8], np.int32)  # PyTorch's rows are multiples of 16 bytes
TOKENS = normal(2, 2, 5, 4, seed=3)  # batch, heads, positions, features
ATTENDED = (TOKENS, TOKENS + 0.1, TOKENS * 0.5)
PEAKS_1, PEAKS_2, PEAKS_3 = normal(2, 4, 3), normal(2, 4, 2, 3), normal(1, 2, 1, 2, 2)
AT_1 = np.broadcast_to(np.array([1, 2, 5]), (2, 4, 3)).copy()
AT_2 = np.broadcast_to(np.array([[0, 3, 5], [13, 14, 22]]), (2, 4, 2, 3)).copy()
AT_3 = np.broadcast_to(np.array([[[1, 2], [12, 15]]]), (1, 2, 1, 2, 2)).copy()
SEQUENCE, E = normal(5, 2, 4, seed=4), normal(12, 4, seed=5, scale=0.5)


def sized(name, *more, **options):
    """The same arguments behind a row of vectors, an image and a volume."""
    return {f"F.{name}{n}d": [given(x, *more, **options)] for n, x in ((1, LINE), (2, IMAGE), (3, VOLUME))}


FRACTIONS_2, FRACTIONS_3 = fixed(uniform(0, 1, 2, 4, 2)), fixed(uniform(0, 1, 1, 2, 3))

CALLS = {
    "fractional_max_pool2d": [given(IMAGE, 2, output_size=(2, 3), _random_samples=FRACTIONS_2)],
    "fractional_max_pool2d_with_indices": [given(IMAGE, 2, output_size=(2, 3), _random_samples=FRACTIONS_2)],
    "fractional_max_pool3d": [given(VOLUME, 2, output_ratio=0.6, _random_samples=FRACTIONS_3)],
    "fractional_max_pool3d_with_indices": [given(VOLUME, 2, output_ratio=0.6, _random_samples=FRACTIONS_3)],
    "linear_cross_entropy": [given(X, Y, np.array([2, 0, 1])), given(X, Y, np.array([2, 0, 1]), linear_bias=V[:3], label_smoothing=0.1)],
    "native_layer_norm": [given(X, (4,), V, Y[0], 1e-5)], "native_group_norm": [given(LINE, V, Y[0], 2, 4, 6, 2, 1e-5)],
    "native_batch_norm": [given(LINE, V, Y[0], MEAN, VARIANCE, True, 0.1, 1e-5), given(LINE, V, Y[0], MEAN, VARIANCE, False, 0.1, 1e-5)],
    "native_dropout": [given(X, 0.5, True)], "native_channel_shuffle": [given(IMAGE, 2)], "native_norm": [given(X)],
    "grid_sampler_2d": [given(IMAGE, GRID, 0, 0, False)], "grid_sampler_3d": [given(VOLUME, GRID_3, 0, 0, False)],
    **sized("adaptive_avg_pool", 2), **sized("avg_pool", 2), **sized("lp_pool", 2.0, 2),
    **{f"F.adaptive_max_pool{n}d": [given(x, 2), given(x, 2, return_indices=True)] for n, x in ((1, LINE), (2, IMAGE), (3, VOLUME))},
    **{f"F.max_pool{n}d": [given(x, 2), given(x, 2, return_indices=True)] for n, x in ((1, LINE), (2, IMAGE), (3, VOLUME))},
    "F.max_unpool1d": [given(PEAKS_1, AT_1, 2)], "F.max_unpool2d": [given(PEAKS_2, AT_2, 2)],
    "F.max_unpool3d": [given(PEAKS_3, AT_3, 2, output_size=(3, 4, 4))],
    "F.conv1d": [given(LINE, K1, BIAS, padding=1)], "F.conv2d": [given(IMAGE, K2, BIAS, padding=1), given(IMAGE, K2, stride=2)],
    "F.conv3d": [given(VOLUME, K3, BIAS)], "F.conv_activation": [given(IMAGE, K2, BIAS, padding=1)],
    "F.conv_transpose1d": [given(LINE, K1.transpose(1, 0, 2), BIAS)], "F.conv_transpose2d": [given(IMAGE, K2.transpose(1, 0, 2, 3), BIAS)],
    "F.conv_transpose3d": [given(VOLUME, K3.transpose(1, 0, 2, 3, 4), BIAS)],
    "F.linear": [given(X, normal(2, 4), normal(2)), given(X, normal(2, 4))], "F.bilinear": [given(X, Y, normal(2, 4, 4), normal(2))],
    "F.grouped_mm": [
        given(X, normal(2, 4, 8), offs=ENDS), given(normal(2, 8, 4), normal(4, 8), offs=ENDS_8),
        given(normal(4, 8), normal(8, 4), offs=ENDS_8),
    ],
    "F.linear_activation": [given(X, normal(2, 4), normal(2))],
    "F.embedding": [given(IDS, TABLE), given(IDS, TABLE, padding_idx=3)],
    "F.embedding_bag": [given(IDS, TABLE), given(IDS, TABLE, mode="sum"),
                        given(IDS, TABLE, mode="sum", per_sample_weights=normal(*IDS.shape))],
    "F.embedding_add": [given(IDS, TABLE, normal(3, 4))],
    "F.batch_norm": [given(IMAGE, MEAN, VARIANCE, **PAIRED), given(IMAGE, MEAN, VARIANCE, **PAIRED, training=True),
                     given(IMAGE, None, None, training=True)],
    "F.instance_norm": [given(IMAGE, **PAIRED), given(IMAGE)], "F.group_norm": [given(IMAGE, 2, **PAIRED)],
    "F.layer_norm": [given(CUBE, (4,), **PAIRED), given(CUBE, (3, 4))],
    "F.rms_norm": [given(CUBE, (4,), PAIRED["weight"]), given(CUBE, (3, 4))],
    "F.add_layer_norm": [given(X, Y, (4,), **PAIRED)], "F.add_rms_norm": [given(X, Y, (4,), PAIRED["weight"])],
    "F.local_response_norm": [given(IMAGE, 3)], "F.normalize": [given(X), given(X, 1.0, 0)],
    "F.cosine_similarity": [given(X, Y)], "F.pairwise_distance": [given(X, Y)],
    **{f"F.{name}": [given(IMAGE), given(IMAGE, 0.3, True)] for name in ("alpha_dropout", "feature_alpha_dropout", "dropout2d")},
    "F.dropout": [given(X), given(X, 0.5, False), given(X, 0.3, True, inplace=True)],
    "F.dropout1d": [given(LINE)], "F.dropout3d": [given(VOLUME)],
    "F.scaled_dot_product_attention": [given(*ATTENDED), given(*ATTENDED, is_causal=True)],
    "F.multi_head_attention_forward": [
        given(SEQUENCE, SEQUENCE + 0.1, SEQUENCE * 0.5, 4, 2, E, E[:, 0], None, None, False, 0.0, E[:4], E[:4, 1]),
    ],
    "F.pad": [given(X, (1, 2)), given(LINE, (1, 2), mode="reflect"), given(IMAGE, (1, 1, 0, 1), mode="replicate"),
              given(X, (-1, 1), value=2.0)],
    "F.pixel_shuffle": [given(IMAGE, 2)], "F.pixel_unshuffle": [given(IMAGE, 2)], "F.channel_shuffle": [given(IMAGE, 2)],
    "F.unfold": [given(IMAGE, 2)], "F.fold": [given(distinct(2, 8, 15, gap=0.01), (4, 6), 2)],
    "F.interpolate": [given(IMAGE, scale_factor=2), given(IMAGE, size=(3, 5), mode="bilinear", align_corners=False)],
    "F.upsample": [given(IMAGE, scale_factor=2)], "F.upsample_bilinear": [given(IMAGE, scale_factor=2)],
    "F.upsample_nearest": [given(IMAGE, scale_factor=2)],
    "F.grid_sample": [given(IMAGE, GRID, align_corners=False)],
    "F.affine_grid": [given(normal(2, 2, 3), (2, 4, 3, 5), align_corners=False)],
    "F.prelu": [given(X, V[:1]), given(X, V)], "F.one_hot": [given(PLACES, 4)],
    "gl.adaptive_max_pool1d": [given(CUBE, 2)], "gl.affine_grid_generator": [given(normal(2, 2, 3), (2, 4, 3, 5), False)],
    "gl.grid_sampler": [given(IMAGE, GRID, 0, 0, False)], "gl.constant_pad_nd": [given(X, (1, 1), 0.5)],
    "gl.dropout": [given(X, 0.5, False)], "gl.alpha_dropout": [given(X, 0.5, False)], "gl.feature_dropout": [given(IMAGE, 0.5, False)],
    "gl.feature_alpha_dropout": [given(IMAGE, 0.5, False)], "gl.embedding": [given(TABLE, IDS)],
    "gl.batch_norm": [given(IMAGE, PAIRED["weight"], PAIRED["bias"], MEAN, VARIANCE, False, 0.1, 1e-5, False)],
    "gl.instance_norm": [given(IMAGE, PAIRED["weight"], PAIRED["bias"], None, None, True, 0.1, 1e-5, False)],
    "gl.group_norm": [given(IMAGE, 2, PAIRED["weight"], PAIRED["bias"])], "gl.layer_norm": [given(CUBE, (3, 4))],
}  # fmt: skip
CALLS |= {f"gl.{name}": [g for g in CALLS[f"F.{name}"] if "return_indices" not in g.options] for name in words("""
    adaptive_avg_pool1d avg_pool1d bilinear channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    cosine_similarity max_pool1d max_pool2d max_pool3d pairwise_distance pixel_shuffle pixel_unshuffle rms_norm
""") if f"F.{name}" in CALLS}  # fmt: skip

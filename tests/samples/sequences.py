"""Samples of the rows of whole sequences: the reference takes each sequence by itself, step by step."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample
from samples.recurrent import gru, gru_backward, lstm, lstm_backward, split


def ways(counts, reverse):
    """Of each sequence its rows, in the order of its walk."""
    starts = np.cumsum([0, *counts])
    for b in range(counts[0]):
        rows = [int(start) + b for start, count in zip(starts, counts) if count > b]
        yield b, rows[::-1] if reverse else rows


def lstm_sequence(gates, weight, h, c, counts, reverse):
    size = h.shape[1]
    hidden, cells, acts = (np.empty((len(gates), n)) for n in (size, size, 4 * size))
    last, cell = h.copy(), c.copy()
    for b, rows in ways(counts, reverse):
        for r in rows:
            last[b], cell[b], acts[r] = lstm(gates[r], weight @ last[b], cell[b])
            hidden[r], cells[r] = last[b], cell[b]
    return hidden, last, cell, cells, acts


def lstm_sequence_backward(acts, dhidden, dlast, dcell, weight, h, c, hidden, cells, counts, reverse):
    dgates, before, dh, dc = np.empty_like(acts), np.empty_like(hidden), dlast.copy(), dcell.copy()
    for b, rows in ways(counts, reverse):
        for i, r in reversed(list(enumerate(rows))):
            before[r], old = (hidden[rows[i - 1]], cells[rows[i - 1]]) if i else (h[b], c[b])
            dgates[r], dc[b] = lstm_backward(dh[b] + dhidden[r], dc[b], acts[r], old, cells[r])
            dh[b] = dgates[r] @ weight
    return dgates, before, dh, dc


def gru_sequence(gates, weight, bias, h, counts, reverse):
    size = h.shape[1]
    hidden, acts, last = np.empty((len(gates), size)), np.empty((len(gates), 4 * size)), h.copy()
    for b, rows in ways(counts, reverse):
        for r in rows:
            own = weight @ last[b] + (0 if bias is None else bias)
            last[b], acts[r, : 3 * size] = gru(gates[r], own, last[b])
            hidden[r], acts[r, 3 * size :] = last[b], split(own, 3)[2]
    return hidden, last, acts


def gru_sequence_backward(acts, dhidden, dlast, weight, h, hidden, counts, reverse):
    size = h.shape[1]
    dgates, down, before, dh = np.empty((len(acts), 3 * size)), np.empty((len(acts), 3 * size)), np.empty_like(hidden), dlast.copy()
    for b, rows in ways(counts, reverse):
        for i, r in reversed(list(enumerate(rows))):
            before[r] = hidden[rows[i - 1]] if i else h[b]
            own = np.concatenate([np.zeros(2 * size), acts[r, 3 * size :]])
            dgates[r], down[r], direct = gru_backward(dh[b] + dhidden[r], acts[r, : 3 * size], own, before[r])
            dh[b] = direct + down[r] @ weight
    return dgates, down, before, dh


def rnn_sequence(gates, weight, h, counts, reverse, nonlinearity):
    hidden, last = np.empty_like(gates), h.copy()
    for b, rows in ways(counts, reverse):
        for r in rows:
            total = gates[r] + weight @ last[b]
            hidden[r] = last[b] = np.tanh(total) if nonlinearity == "tanh" else total * (total > 0)
    return hidden, last


def rnn_sequence_backward(dhidden, dlast, weight, h, hidden, counts, reverse, nonlinearity):
    dgates, before, dh = np.empty_like(hidden), np.empty_like(hidden), dlast.copy()
    for b, rows in ways(counts, reverse):
        for i, r in reversed(list(enumerate(rows))):
            before[r] = hidden[rows[i - 1]] if i else h[b]
            dgates[r] = (dh[b] + dhidden[r]) * ((1 - hidden[r] ** 2) if nonlinearity == "tanh" else hidden[r] > 0)
            dh[b] = dgates[r] @ weight
    return dgates, before, dh


# Sizes, and how many sequences each step has.
LAYERS = [(3, [2, 2, 2], False), (5, [4, 3, 3, 1], False), (5, [4, 3, 3, 1], True), (17, [3], True)]


def layers(forward, backward, count, states, make, options=({},)):
    """Samples of both ways. make: the forward's inputs of gates, weight, bias, states, counts; the backward's come from its results."""
    there, back = [], []
    for size, counts, reverse in LAYERS:
        rows, batch, counts = sum(counts), counts[0], np.array(counts)
        for option in options:
            params = {"reverse": reverse, **option}

            def inputs(seed, size=size, rows=rows, batch=batch, counts=counts):
                firsts = [normal(batch, size, seed=seed + 5 + i) for i in range(states)]
                gates, weight = normal(rows, count * size, seed=seed), normal(count * size, size, seed=seed + 1, scale=0.5)
                return make(gates, weight, normal(count * size, seed=seed + 2), firsts, counts)

            def gradients(seed, size=size, rows=rows, batch=batch, inputs=inputs, params=params):
                given = dict(zip(forward.__code__.co_varnames, inputs(seed)))
                hidden, *found = forward(**given, **params)
                arrived = [normal(rows, size, seed=seed + 8), *(normal(batch, size, seed=seed + 9 + i) for i in range(states))]
                firsts, cells = ([given["h"], given["c"]], [found[2]]) if states == 2 else ([given["h"]], [])
                acts = [found[-1]] if len(found) > states else []
                return (*acts, *arrived, given["weight"], *firsts, hidden, *cells, given["counts"])

            for samples, made, reference in ((there, inputs, forward), (back, gradients, backward)):
                fresh = lambda r, made=made: made(int(r.integers(100, 1 << 20)))
                samples.append(sample(*made(0), reference=reference, gradients=0, fresh=fresh, **params))
    return {forward.__name__: there, backward.__name__: back}


SAMPLES = {
    **layers(lstm_sequence, lstm_sequence_backward, 4, 2, lambda gates, weight, bias, states, counts: (gates, weight, *states, counts)),
    **layers(gru_sequence, gru_sequence_backward, 3, 1, lambda gates, weight, bias, states, counts: (gates, weight, bias, *states, counts)),
    **layers(rnn_sequence, rnn_sequence_backward, 1, 1, lambda gates, weight, bias, states, counts: (gates, weight, *states, counts),
             ({"nonlinearity": "tanh"}, {"nonlinearity": "relu"})),
}  # fmt: skip
gates, weight, _, *states = SAMPLES["gru_sequence"][0].inputs
SAMPLES["gru_sequence"].append(sample(gates, weight, None, *states, reference=gru_sequence, gradients=0, reverse=False))

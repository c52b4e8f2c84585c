// Recurrent layers over whole sequences, there and back. Rows lie in the order of time: of each step those sequences that are still there, the
// longest first (`counts`). A thread does all steps of some sequences, so that none waits for another. float.
//
// `Cell` says what a unit does with the sums of its gates; `own` is the state's share of them. A step's product lies where its gates (of plain units
// the states) will lie, and is overwritten row by row: products that a cell reads block by block, a page from row to row, cost it twice the time.
#include "panel_product.h"

namespace {

struct LstmCell {
  static constexpr int64_t GATES = 4, KEPT = 4, SLOPES = 4;  // numbers of a unit: the gates' sums, what backward needs of them, their gradients
  static constexpr bool MEMORY = true, DIRECT = false, BESIDE = false;
  template <bool F>
  static inline __attribute__((always_inline)) void run(
      const float* gates, const float* own, int64_t n, const float*, const float* c, float* hidden, float* cell, float* acts, int64_t j, int64_t have) {
    const auto sum = [=](int64_t gate) { return some<F>(gates + gate * n + j, have) + some<F>(own + gate * n + j, have); };
    const Lstm found(sum(0), sum(1), sum(2), sum(3), some<F>(c + j, have));
    put<F>(acts + j, found.i, have), put<F>(acts + n + j, found.f, have);
    put<F>(acts + 2 * n + j, found.g, have), put<F>(acts + 3 * n + j, found.o, have);
    put<F>(cell + j, found.cell, have), put<F>(hidden + j, found.hidden, have);
  }
  template <bool F>
  static inline __attribute__((always_inline)) void back(
      V dh, const float* acts, int64_t n, const float*, const float*, const float* c, const float* cell, float*, float* dc, float* d, float*,
      int64_t j, int64_t have) {
    const auto of = [=](const float* at) { return some<F>(at + j, have); };
    const LstmSlopes found(dh, of(dc), of(acts), of(acts + n), of(acts + 2 * n), of(acts + 3 * n), of(c), of(cell));
    put<F>(d + j, found.i, have), put<F>(d + n + j, found.f, have), put<F>(d + 2 * n + j, found.g, have), put<F>(d + 3 * n + j, found.o, have);
    put<F>(dc + j, found.old, have);
  }
};

struct GruCell {  // keeps the state's share of the third gate behind the three
  static constexpr int64_t GATES = 3, KEPT = 4, SLOPES = 3;
  static constexpr bool MEMORY = false, DIRECT = true, BESIDE = true;
  template <bool F>
  static inline __attribute__((always_inline)) void run(
      const float* gates, const float* own, int64_t n, const float* h, const float*, float* hidden, float*, float* acts, int64_t j, int64_t have) {
    const auto sum = [=](int64_t gate) { return some<F>(gates + gate * n + j, have) + some<F>(own + gate * n + j, have); };
    const V r = sigmoid(sum(0)), z = sigmoid(sum(1)), mine = some<F>(own + 2 * n + j, have);
    const V t = hyperbolic_tangent(fused(r, mine, some<F>(gates + 2 * n + j, have)));
    put<F>(acts + j, r, have), put<F>(acts + n + j, z, have), put<F>(acts + 2 * n + j, t, have), put<F>(acts + 3 * n + j, mine, have);
    put<F>(hidden + j, fused(z, some<F>(h + j, have) - t, t), have);
  }
  template <bool F>
  static inline __attribute__((always_inline)) void back(
      V g, const float* acts, int64_t n, const float* h, const float*, const float*, const float*, float* dh, float*, float* d, float* down,
      int64_t j, int64_t have) {
    const auto of = [=](const float* at) { return some<F>(at + j, have); };
    const V one = all(1), r = of(acts), z = of(acts + n), t = of(acts + 2 * n);
    const V dt = (one - t * t) * (one - z) * g, dr = (one - r) * r * dt * of(acts + 3 * n);
    const V dz = (one - z) * z * (of(h) - t) * g;
    put<F>(d + j, dr, have), put<F>(d + n + j, dz, have), put<F>(d + 2 * n + j, dt, have);
    put<F>(down + j, dr, have), put<F>(down + n + j, dz, have), put<F>(down + 2 * n + j, dt * r, have);
    put<F>(dh + j, g * z, have);
  }
};

template <bool TANH> struct PlainCell {  // keeps nothing: backward reads the results
  static constexpr int64_t GATES = 1, KEPT = 0, SLOPES = 1;
  static constexpr bool MEMORY = false, DIRECT = false, BESIDE = false;
  template <bool F>
  static inline __attribute__((always_inline)) void run(
      const float* gates, const float* own, int64_t, const float*, const float*, float* hidden, float*, float*, int64_t j, int64_t have) {
    const V sum = some<F>(gates + j, have) + some<F>(own + j, have);
    put<F>(hidden + j, TANH ? hyperbolic_tangent(sum) : larger(V{}, sum), have);
  }
  template <bool F>
  static inline __attribute__((always_inline)) void back(
      V g, const float*, int64_t, const float*, const float* y, const float*, const float*, float*, float*, float* d, float*, int64_t j,
      int64_t have) {
    const V made = some<F>(y + j, have);
    put<F>(d + j, TANH ? (all(1) - made * made) * g : (V)((Whole)g & (Whole)(made > V{})), have);
  }
};

// The sequences of a thread, and whether `counts` can be: of all steps, at least one, none larger than the one before.
struct Steps {
  const int64_t* counts;
  int64_t batch, steps, total = 0, low, high;
  bool sound;

  Steps(const int64_t* counts, int64_t batch, int64_t steps, int64_t rows, int part, int parts) : counts(counts), batch(batch), steps(steps) {
    sound = steps > 0 && counts[0] == batch;
    for (int64_t t = 0; t < steps; ++t) total += counts[t], sound &= counts[t] >= 0 && (t == 0 || counts[t] <= counts[t - 1]);
    sound &= total == rows;
    low = bound(part, parts), high = bound(part + 1, parts);
  }
  // Where a part begins, that all have as many rows.
  int64_t bound(int part, int parts) const {
    if (!sound || part == 0) return 0;
    if (part == parts) return batch;
    if (total == batch * steps) return batch * part / parts;
    int64_t first = 0, last = batch;
    while (first < last) {
      const int64_t middle = (first + last) / 2;
      int64_t before = 0;
      for (int64_t t = 0; t < steps; ++t) before += counts[t] < middle ? counts[t] : middle;
      if (before * parts < total * part) first = middle + 1;
      else last = middle;
    }
    return first;
  }
  int64_t until(int64_t t) const { return t < 0 || t >= steps ? 0 : counts[t] < high ? counts[t] : high; }
};

// f(step, its first row in the order of time, the first row of the step whose states it begins with or -1, the first and the last of those
// sequences): twice where some begin with the states that are given. on: from the first step on; along: in the order of the walk itself.
template <typename F> void walk(const Steps& s, bool on, bool along, const F& f) {
  const bool up = on == along;
  int64_t at = up ? 0 : s.total;
  for (int64_t i = 0; i < s.steps; ++i) {
    const int64_t t = up ? i : s.steps - 1 - i;
    if (!up) at -= s.counts[t];
    const int64_t from = on ? t == 0 ? -1 : at - s.counts[t - 1] : t + 1 == s.steps ? -1 : at + s.counts[t];
    const int64_t high = s.until(t), old = from < 0 ? 0 : on ? high : s.until(t + 1);
    if (old > s.low) f(t, at, from, s.low, old);
    const int64_t begun = old < s.low ? s.low : old;
    if (high > begun) f(t, at, int64_t(-1), begun, high);
    if (up) at += s.counts[t];
  }
}

// Rows that are multiplied with all panels before the next ones: as many as the second-level cache keeps meanwhile.
inline int64_t rows_of(int64_t depth) {
  const int64_t some = (128 << 10) / (depth * int64_t(sizeof(float))) / ROWS * ROWS;
  return some < 4 * ROWS ? 4 * ROWS : some;
}

// Pointers: hidden, last, acts, gates, panels, h, counts, status, then the bias of `own` where there is one, or of an LSTM cell, cells, c.
// Parameters: batch, units, steps, rows, whether from the last step on, whether there is a bias
template <typename Cell> void forward(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1], kept = Cell::KEPT * n, wide = Cell::GATES * n;
  const bool on = v[4] == 0;
  float *hidden = (float*)p[0], *last = (float*)p[1], *acts = (float*)p[2];
  const float *gates = (const float*)p[3], *panels = (const float*)p[4], *first = (const float*)p[5];
  const float* bias = !Cell::MEMORY && v[5] != 0 ? (const float*)p[8] : nullptr;
  float *end = Cell::MEMORY ? (float*)p[8] : nullptr, *cells = Cell::MEMORY ? (float*)p[9] : nullptr;
  const float* begin = Cell::MEMORY ? (const float*)p[10] : nullptr;
  const Steps s((const int64_t*)p[6], v[0], v[2], v[3], part, parts);
  if (!s.sound) {
    *(int64_t*)p[7] = 1;
    return;
  }
  walk(s, on, true, [&](int64_t t, int64_t at, int64_t from, int64_t low, int64_t high) {
    const float *h = from < 0 ? first : hidden + from * n, *c = !Cell::MEMORY ? nullptr : from < 0 ? begin : cells + from * n;
    for (int64_t top = low, tall = rows_of(n); top < high; top += tall) {
      const int64_t end_of = high - top < tall ? high : top + tall;
      float* const own = Cell::KEPT == 0 ? hidden + (at + top) * n : acts + (at + top) * kept;
      for (int64_t unit = 0; unit < wide; unit += P)
        panel_product(h + top * n, n, panels + unit * n, n, end_of - top, own + unit, Cell::KEPT == 0 ? n : kept, true,
                      wide - unit < P ? wide - unit : P, WHOLE, bias == nullptr ? nullptr : bias + unit);
      for (int64_t r = top; r < end_of; ++r) {
        const int64_t row = at + r;
        each_vector(n, [=](auto full, int64_t j, int64_t have) {
          Cell::template run<decltype(full)::value>(
              gates + row * wide, own + (r - top) * (Cell::KEPT == 0 ? n : kept), n, h + r * n, Cell::MEMORY ? c + r * n : nullptr, hidden + row * n,
              Cell::MEMORY ? cells + row * n : nullptr, acts + row * kept, j, have);
        });
      }
    }
    // Where a sequence ends in this walk, its states are the last ones.
    const int64_t ends = on ? t + 1 < s.steps ? s.counts[t + 1] : 0 : t == 0 ? 0 : high, begun = ends > low ? ends : low;
    for (int64_t r = begun; r < high; ++r) {
      std::memcpy(last + r * n, hidden + (at + r) * n, sizeof(float) * size_t(n));
      if (Cell::MEMORY) std::memcpy(end + r * n, cells + (at + r) * n, sizeof(float) * size_t(n));
    }
  });
}

// Pointers: dgates, before, dh, acts, the gradients of hidden and last, panels, h, hidden, counts, status, then of a GRU the gradients of `own`,
// of an LSTM dc, the gradient of cell, c, cells. before: the states that each step begins with. Parameters as above, without the bias
template <typename Cell> void backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1], kept = Cell::KEPT * n, wide = Cell::GATES * n;
  const bool on = v[4] == 0;
  float *d = (float*)p[0], *before = (float*)p[1], *dh = (float*)p[2];
  const float *acts = (const float*)p[3], *arrived = (const float*)p[4], *g_last = (const float*)p[5], *panels = (const float*)p[6];
  const float *first = (const float*)p[7], *hidden = (const float*)p[8];
  float *down = Cell::BESIDE ? (float*)p[11] : nullptr, *dc = Cell::MEMORY ? (float*)p[11] : nullptr;
  const float *g_cell = Cell::MEMORY ? (const float*)p[12] : nullptr, *begin = Cell::MEMORY ? (const float*)p[13] : nullptr;
  const float* cells = Cell::MEMORY ? (const float*)p[14] : nullptr;
  const Steps s((const int64_t*)p[9], v[0], v[2], v[3], part, parts);
  if (!s.sound) {
    *(int64_t*)p[10] = 1;
    return;
  }
  const size_t row_size = sizeof(float) * size_t(n);
  const size_t some_rows_size = s.low < s.high ? row_size * size_t(s.high - s.low) : 0;
  std::memcpy(dh + s.low * n, g_last + s.low * n, some_rows_size);
  if (Cell::MEMORY) std::memcpy(dc + s.low * n, g_cell + s.low * n, some_rows_size);
  walk(s, on, false, [&](int64_t, int64_t at, int64_t from, int64_t low, int64_t high) {
    const float *h = from < 0 ? first : hidden + from * n, *c = !Cell::MEMORY ? nullptr : from < 0 ? begin : cells + from * n;
    for (int64_t top = low, tall = rows_of(wide); top < high; top += tall) {
      const int64_t end_of = high - top < tall ? high : top + tall;
      for (int64_t r = top; r < end_of; ++r) {
        const int64_t row = at + r;
        std::memcpy(before + row * n, h + r * n, row_size);
        each_vector(n, [=](auto full, int64_t j, int64_t have) {
          constexpr bool F = decltype(full)::value;
          const V g = some<F>(dh + r * n + j, have) + some<F>(arrived + row * n + j, have);
          Cell::template back<F>(g, acts + row * kept, n, h + r * n, hidden + row * n, Cell::MEMORY ? c + r * n : nullptr,
                                 Cell::MEMORY ? cells + row * n : nullptr, dh + r * n, Cell::MEMORY ? dc + r * n : nullptr, d + row * wide,
                                 Cell::BESIDE ? down + row * wide : nullptr, j, have);
        });
      }
      const float* slopes = (Cell::BESIDE ? down : d) + (at + top) * wide;
      for (int64_t unit = 0; unit < n; unit += P)
        panel_product(slopes, wide, panels + unit * wide, wide, end_of - top, dh + top * n + unit, n, !Cell::DIRECT, n - unit < P ? n - unit : P, DEPTH);
    }
  });
}

}  // namespace

GRADLAB_KERNEL gradlab_lstm_sequence(char** p, const int64_t* v, int part, int parts) { forward<LstmCell>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_gru_sequence(char** p, const int64_t* v, int part, int parts) { forward<GruCell>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_tanh_sequence(char** p, const int64_t* v, int part, int parts) { forward<PlainCell<true>>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_relu_sequence(char** p, const int64_t* v, int part, int parts) { forward<PlainCell<false>>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_lstm_sequence_backward(char** p, const int64_t* v, int part, int parts) { backward<LstmCell>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_gru_sequence_backward(char** p, const int64_t* v, int part, int parts) { backward<GruCell>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_tanh_sequence_backward(char** p, const int64_t* v, int part, int parts) { backward<PlainCell<true>>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_relu_sequence_backward(char** p, const int64_t* v, int part, int parts) { backward<PlainCell<false>>(p, v, part, parts); }

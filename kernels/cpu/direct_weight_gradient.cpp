// The gradient of a convolution's weight, directly: dw[o, c, place] = Σ over images and pixels dy[pixel, o] · x[pixel + place, c].
#include "direct_weight_gradient.h"

namespace {

thread_local LargeScratch slope_scratch;
thread_local Scratch place_scratch;

// Which elements a vector holds: outputs, channels, pixels; or one channel, and one output, of each group. These are parts 0 to 3 of the file.
enum Way { OUTPUTS, CHANNELS, PIXELS, APART };

constexpr int64_t ROOM = 1 << 16;       // floats of a laid band: a quarter of the second-level cache
constexpr int64_t FEW = (1 << 14) / P;  // pixels of a band: few enough for a panel of dy to stay near
constexpr int64_t MANY = 1 << 11;       // of PIXELS, which reads dy seldom

// The call, as its parameters lie: images, their gradients; sizes of the kernel, strides, where the first place of the first pixel lies,
// dilation, groups; how the work is divided: blocks of images, parts of the groups, of a group's channels, and of its outputs; the way, which whoever
// makes the call has chosen (lowerings/conv_weight_gradient.py).
struct Call {
  Images x, y;
  int64_t kh, kw, sy, sx, top, left, dy, dx, groups;
  int64_t blocks, group_parts, channel_parts, output_parts;
  int64_t way;
};

// Some pixels: of images from n on, rows from y on and columns from x on.
struct Band {
  int64_t n, images, y, tall, x, broad;
};

// Images in memory: the first element met by the first place, the steps between groups and channels, and the others.
struct View {
  const float* at;
  int64_t group, channel;
  Steps step;
};

// Groups [g0, g0 + groups), and of each of them channels [c0, c0 + channels) and outputs [o0, o0 + outputs): a part of the weight, whose sums
// one thread has at a time.
struct Part {
  const Call& s;
  int64_t places, given, own;  // places of the kernel, channels and outputs of a group
  int64_t g0, groups, c0, channels, o0, outputs;
  Way way;
  bool fold;  // vectors of channels go on along the kernel's row
  int64_t span, spans, band, bands, together;  // columns, rows and images that are laid at once

  Part(const Call& s, int64_t part) : s(s), places(s.kh * s.kw), given(s.x.c / s.groups), own(s.y.c / s.groups) {
    const int64_t g = part / (s.channel_parts * s.output_parts);
    g0 = s.groups * g / s.group_parts, groups = s.groups * (g + 1) / s.group_parts - g0;
    const Share c = share(given, int(part / s.output_parts % s.channel_parts), int(s.channel_parts), 16);
    const Share o = share(own, int(part % s.output_parts), int(s.output_parts), 16);
    c0 = c.first, channels = c.last - c.first, o0 = o.first, outputs = o.last - o.first;
    way = s.way == PIXELS && s.y.w < L ? OUTPUTS : Way(s.way), fold = s.dx == 1 && way == CHANNELS;
    divide();
  }

  bool x_last() const { return s.x.step[1] == 1 && s.x.c > 1; }
  bool y_last() const { return s.y.step[1] == 1 && s.y.c > 1; }

  // Bands of pixels that fit the cache, as even as possible; several images together where they are small.
  void divide() {
    const int64_t most = least(way == PIXELS ? MANY : FEW, up(s.y.n * s.y.h * s.y.w, s.blocks));
    span = s.y.w, band = 1, together = 1;
    while (span > 2 * L && (span > most * 3 / 2 || room(1, span) > ROOM)) span = up(span, 2);
    spans = up(s.y.w, span), span = up(s.y.w, spans);
    band = least(s.y.h, most > span ? most / span : 1);
    while (band > 1 && room(band, span) > ROOM) --band;
    bands = up(s.y.h, band), band = up(s.y.h, bands);
    if (bands * spans > 1) return;
    together = least(s.y.n, least(most / (s.y.h * s.y.w), ROOM / room(band, span)));
    if (together < 1) together = 1;
  }

  int64_t high(int64_t rows) const { return (rows - 1) * s.sy + (s.kh - 1) * s.dy + 1; }
  int64_t broad(int64_t columns) const { return (columns - 1) * s.sx + (s.kw - 1) * s.dx + 1; }
  int64_t kept() const { return groups * channels; }  // channels of x
  int64_t pitch() const { return up(way == APART ? groups : way == OUTPUTS ? outputs : (fold ? s.kw : 1) * channels, L) * L; }  // of a row of sums
  int64_t wide() const { return way == APART ? pitch() : fold ? channels : kept(); }  // of a pixel of x that is laid with channels last
  int64_t units() const { return fold ? s.kh : places; }  // of CHANNELS: rows of vectors
  int64_t sums() const {
    if (way == OUTPUTS) return groups * places * channels * pitch();
    if (way == CHANNELS) return groups * units() * outputs * pitch();
    return outputs * places * channels * (way == PIXELS ? groups * L : pitch());
  }
  // Floats of laid x and dy.
  int64_t room(int64_t rows, int64_t columns) const { return high(rows) * broad(columns) * (way == APART ? channels * pitch() : kept()); }
  int64_t x_room() const { return together * room(band, span) + P; }
  int64_t y_room() const { return together * band * span * (way == APART ? pitch() : way == OUTPUTS ? P : way == PIXELS ? groups * outputs : 0) + P; }
};

// A part at work.
struct Work {
  const Part& q;
  const Call& s;
  const float *x, *y;
  float *x_laid, *y_laid, *total;
  int64_t* place;     // where the kernel's places lie in the view of x
  bool more = false;  // sums are added to

  template <typename F> void set_places(F f) const {
    for (int64_t a = 0; a < s.kh; ++a)
      for (int64_t b = 0; b < s.kw; ++b) place[a * s.kw + b] = f(a * s.dy, b * s.dx);
  }
  View view_of_x(const Band& b) const {
    const int64_t top = s.top + b.y * s.sy, left = s.left + b.x * s.sx, rows = q.high(b.tall), columns = q.broad(b.broad), wide = q.wide();
    const int64_t image = rows * columns;
    const float* from = x + (q.g0 * q.given + q.c0) * s.x.step[1];
    bool lies = top >= 0 && left >= 0 && top + rows <= s.x.h && left + columns <= s.x.w;
    if (q.way == PIXELS) lies = lies && s.x.step[3] == 1;
    if (q.way == APART) lies = lies && s.x.step[1] == 1 && q.channels == 1 && q.groups % L == 0;
    if (q.way == CHANNELS) lies = lies && s.x.step[1] == 1 && (q.fold ? s.x.step[3] == q.channels && s.kw * q.channels % L == 0 : q.channels % L == 0);
    if (lies) {
      set_places([&](int64_t y, int64_t x) { return y * s.x.step[2] + x * s.x.step[3]; });
      return {from + b.n * s.x.step[0] + top * s.x.step[2] + left * s.x.step[3], q.given * s.x.step[1], s.x.step[1],
              {s.x.step[0], s.sy * s.x.step[2], s.sx * s.x.step[3]}};
    }
    Images some = s.x;
    if (q.way == PIXELS || (q.way == OUTPUTS && !q.x_last())) {
      some.c = q.kept();
      for (int64_t i = 0; i < b.images; ++i) planes(from, some, b.n + i, top, rows, left, columns, b.images * image, x_laid + i * image);
      set_places([&](int64_t y, int64_t x) { return y * columns + x; });
      return {x_laid, q.channels * b.images * image, b.images * image, {image, s.sy * columns, s.sx}};
    }
    set_places([&](int64_t y, int64_t x) { return (y * columns + x) * wide; });
    const int64_t all = b.images * image * wide;
    if (q.way == APART) some.c = q.groups, some.step[1] *= q.given;  // one channel of each group
    else some.c = q.fold ? q.channels : q.kept();                    // those of a group; or all
    const int64_t times = q.way == APART ? q.channels : q.fold ? q.groups : 1, step = q.way == APART ? s.x.step[1] : q.given * s.x.step[1];
    for (int64_t k = 0; k < times; ++k)
      for (int64_t i = 0; i < b.images; ++i) lay(from + k * step, some, b.n + i, top, rows, left, columns, wide, x_laid + k * all + i * image * wide);
    return {x_laid, q.fold ? all : q.channels, q.way == APART ? all : 1, {image * wide, s.sy * columns * wide, s.sx * wide}};
  }

  // dy where it lies; or `count` outputs of it from the part's number o on, as vectors. What is behind the last of them is of no account.
  View lying_y(const Band& b, int64_t o) const {
    const float* from = y + (q.g0 * q.own + q.o0 + o) * s.y.step[1];
    return {from + b.n * s.y.step[0] + b.y * s.y.step[2] + b.x * s.y.step[3], q.own * s.y.step[1], s.y.step[1], {s.y.step[0], s.y.step[2], s.y.step[3]}};
  }
  View view_of_y(const Band& b, int64_t o, int64_t count, bool lies, int64_t step = 1) const {
    if (lies && step * s.y.step[1] == 1 && count % L == 0) return lying_y(b, o);
    const int64_t wide = q.y_last() && step == 1 ? count : up(count, L) * L, image = b.tall * b.broad * wide;
    Images some = s.y;
    some.c = count, some.step[1] *= step;
    const float* from = y + (q.g0 * q.own + q.o0 + o) * s.y.step[1];
    for (int64_t i = 0; i < b.images; ++i) lay(from, some, b.n + i, b.y, b.tall, b.x, b.broad, wide, y_laid + i * image);
    return {y_laid, 0, 1, {image, b.broad * wide, wide}};
  }

  // Blocks of `count` rows of sums; next() gives what the next row multiplies by.
  template <typename F>
  void rows(Kind kind, int64_t count, int64_t wide, const Run& run, const float* b, int64_t apart, float* to, int64_t to_row, int64_t to_vector, F next) const {
    const Run r = run.joined();
    const float* a[MOST];
    const int64_t strips = up(count, most_rows(wide));
    for (int64_t i = 0, k = 0; i < strips; ++i) {
      const int64_t many = count * (i + 1) / strips - k;
      for (int64_t j = 0; j < many; ++j) a[j] = next();
      kernel(kind, many, wide)(a, b, apart, r, more, to + k * to_row, to_row, to_vector);
      k += many;
    }
  }

  // All channels of the places, one after the other.
  struct Next {
    const int64_t* place;
    const float* at;
    int64_t channel, channels, c = 0;
    const float* operator()() {
      const float* found = at + *place + c * channel;
      if (++c == channels) c = 0, ++place;
      return found;
    }
  };

  void by_outputs(const Band& b, const View& x) const {
    const int64_t pitch = q.pitch(), depth = q.places * q.channels;
    for (int64_t g = 0; g < q.groups; ++g)
      for (int64_t o = 0; o < q.outputs; o += P) {
        const int64_t count = least(P, q.outputs - o);
        const View y = view_of_y(b, g * q.own + o, count, q.outputs <= P || depth <= 2 * ROWS);
        rows(NUMBERS, depth, count > L ? 2 : 1, {b.images, b.tall, b.broad, x.step, y.step}, y.at, L, total + g * depth * pitch + o, pitch, L,
             Next{place, x.at + g * x.group, x.channel, q.channels});
      }
  }
  void by_channels(const Band& b, const View& x) const {
    const int64_t pitch = q.pitch(), units = q.units(), step = q.fold ? s.kw : 1, wide = (q.fold ? s.kw : 1) * q.channels;
    const bool single = wide <= L;  // then two units go together, else the two halves of one
    for (int64_t g = 0; g < q.groups; ++g) {
      const View y = lying_y(b, g * q.own);
      for (int64_t t = 0; t < units; t += single ? 2 : 1)
        for (int64_t j = 0; j < wide; j += P) {
          const float* at = y.at;
          const bool two = single ? t + 1 < units : wide - j > L;
          const int64_t apart = !single ? L : two ? place[(t + 1) * step] - place[t * step] : 0;
          rows(NUMBERS, q.outputs, two ? 2 : 1, {b.images, b.tall, b.broad, y.step, x.step}, x.at + g * x.group + place[t * step] + j, apart,
               total + (g * units + t) * q.outputs * pitch + j, pitch, single ? q.outputs * pitch : L, [&] { return (at += y.channel) - y.channel; });
        }
    }
  }
  void by_pixels(const Band& b, const View& x) const {
    View y = lying_y(b, 0);
    if (s.y.step[3] != 1) {
      const int64_t image = b.tall * b.broad, plane = b.images * image;
      Images some = s.y;
      some.c = q.groups * q.outputs;
      for (int64_t i = 0; i < b.images; ++i)
        planes(this->y + (q.g0 * q.own + q.o0) * s.y.step[1], some, b.n + i, b.y, b.tall, b.x, b.broad, plane, y_laid + i * image);
      y = {y_laid, q.outputs * plane, plane, {image, b.broad, 1}};
    }
    const int64_t depth = q.places * q.channels, strips = up(q.outputs, WIDEST);
    const Run run = {b.images, b.tall, b.broad / L, {x.step.image, x.step.row, L}, {y.step.image, y.step.row, L}, b.broad % L};
    for (int64_t g = 0; g < q.groups; ++g)
      for (int64_t i = 0; i < strips; ++i) {
        const int64_t o = q.outputs * i / strips, wide = q.outputs * (i + 1) / strips - o;
        rows(VECTORS, depth, wide, run, y.at + g * y.group + o * y.channel, y.channel, total + (g * q.outputs + o) * depth * L, L, depth * L,
             Next{place, x.at + g * x.group, x.channel, q.channels});
      }
  }
  void apart(const Band& b, const View& x) const {
    const int64_t pitch = q.pitch(), depth = q.places * q.channels;
    for (int64_t o = 0; o < q.outputs; ++o) {
      const View y = view_of_y(b, o, q.groups, true, q.own);
      for (int64_t g = 0; g < q.groups; g += L)
        rows(VECTORS, depth, 1, {b.images, b.tall, b.broad, x.step, y.step}, y.at + g, 0, total + o * depth * pitch + g, pitch, 0,
             Next{place, x.at + g, x.channel, q.channels});
    }
  }

  void add(const Band& b) {
    const View x = view_of_x(b);
    if (q.way == OUTPUTS) GRADLAB_PART(OUTPUTS) by_outputs(b, x);
    else if (q.way == CHANNELS) GRADLAB_PART(CHANNELS) by_channels(b, x);
    else if (q.way == PIXELS) GRADLAB_PART(PIXELS) by_pixels(b, x);
    else GRADLAB_PART(APART) apart(b, x);
    more = true;
  }
  // The sums, to their places in dw [outputs, channels of a group, places].
  void put(float* dw) const {
    const int64_t depth = q.given * q.places, many = q.channels * q.places, pitch = q.pitch();
    for (int64_t g = 0; g < q.groups; ++g) {
      float* to = dw + ((q.g0 + g) * q.own + q.o0) * depth + q.c0 * q.places;
      if (q.way == OUTPUTS) GRADLAB_PART(OUTPUTS) {
        for (int64_t o = 0; o < q.outputs; o += L)
          for (int64_t k = 0, c = 0, t = 0; k < many; k += L) {
            const float* from[L];
            for (int j = 0; j < L; ++j) {
              from[j] = total + (g * many + t * q.channels + c) * pitch + o;
              if (k + j + 1 < many && ++t == q.places) t = 0, ++c;
            }
            V some[L];
            turned([&](int64_t j) { return from[j]; }, some);
            const int64_t have = least(L, many - k), rows = least(L, q.outputs - o);
            for (int64_t j = 0; j < rows; ++j) {
              if (have == L) store(to + (o + j) * depth + k, some[j]);
              else std::memcpy(to + (o + j) * depth + k, &some[j], sizeof(float) * size_t(have));
            }
          }
      }
      else if (q.way == CHANNELS) GRADLAB_PART(CHANNELS) {
        for (int64_t o = 0; o < q.outputs; ++o)
          for (int64_t t = 0; t < q.places; ++t) {
            const float* from = total + ((g * q.units() + (q.fold ? t / s.kw : t)) * q.outputs + o) * pitch + (q.fold ? t % s.kw * q.channels : 0);
            for (int64_t c = 0; c < q.channels; ++c) to[o * depth + c * q.places + t] = from[c];
          }
      }
      else if (q.way == PIXELS) GRADLAB_PART(PIXELS) {
        for (int64_t o = 0; o < q.outputs; ++o)
          for (int64_t k = 0; k < many; ++k) {
            float lane[L];
            std::memcpy(lane, total + ((g * q.outputs + o) * many + k % q.places * q.channels + k / q.places) * L, sizeof lane);
            for (int64_t half = L / 2; half > 0; half /= 2)
              for (int64_t j = 0; j < half; ++j) lane[j] += lane[j + half];
            to[o * depth + k] = lane[0];
          }
      }
      else GRADLAB_PART(APART) {
        for (int64_t o = 0; o < q.outputs; ++o)
          for (int64_t t = 0; t < q.places; ++t)
            for (int64_t c = 0; c < q.channels; ++c) to[o * depth + c * q.places + t] = total[(o * many + t * q.channels + c) * pitch + g];
      }
    }
  }
};

}  // namespace

// dw, or partial sums [blocks, dw]; x, dy; parameters: the call.
GRADLAB_KERNEL gradlab_direct_dw(char** p, const int64_t* v, int part, int parts) {
  const Call& s = *(const Call*)v;
  const int64_t split = s.group_parts * s.channel_parts * s.output_parts, size = s.y.c * (s.x.c / s.groups) * s.kh * s.kw;
  int64_t* place = (int64_t*)place_scratch.of(sizeof(int64_t) * size_t(s.kh * s.kw));
  if (place == nullptr) return no_memory(p);
  const UntilTheEnd end(slope_scratch);
  Pieces pieces(p, part, parts, s.blocks * split);
  for (Share piece; pieces.next(piece);) {
    const Part q(s, piece.first % split);
    const int64_t block = piece.first / split, units = up(s.y.n, q.together) * q.bands * q.spans;
    const int64_t sums = q.sums(), x_room = up(q.x_room(), 16) * 16;
    float* total = (float*)slope_scratch.of(sizeof(float) * size_t(sums + x_room + q.y_room()));
    if (total == nullptr) return no_memory(p);
    Work work = {q, s, (const float*)p[1], (const float*)p[2], total + sums, total + sums + x_room, total, place};
    for (int64_t u = units * block / s.blocks; u < units * (block + 1) / s.blocks; ++u) {
      const int64_t n = u / (q.bands * q.spans) * q.together, y = u / q.spans % q.bands * q.band, x = u % q.spans * q.span;
      work.add({n, least(q.together, s.y.n - n), y, least(q.band, s.y.h - y), x, least(q.span, s.y.w - x)});
    }
    if (!work.more) std::memset(total, 0, sizeof(float) * size_t(sums));
    work.put((float*)p[0] + block * size);
  }
}

// dw, partial sums; parameters: elements, blocks.
GRADLAB_KERNEL gradlab_direct_dw_sum(char** p, const int64_t* v, int part, int parts) {
  const Share mine = share(v[0], part, parts, 64);
  float* y = (float*)p[0];
  for (int64_t i = mine.first; i < mine.last; i += L) {
    const float* x = (const float*)p[1] + i;
    if (i + L > mine.last) {
      for (int64_t j = i; j < mine.last; ++j, ++x) {
        y[j] = x[0];
        for (int64_t b = 1; b < v[1]; ++b) y[j] += x[b * v[0]];
      }
      break;
    }
    V sum = load(x);
    for (int64_t b = 1; b < v[1]; ++b) sum += load(x + b * v[0]);
    store(y + i, sum);
  }
}

// Elementwise loops without a compiler: a program of vector functions over blocks of elements that the first-level cache holds. Every function
// does one row on one block (`gradlab/backends/native/vector_functions.py` writes them); results are those of a generated loop to the bit.
#include "gemm.h"

namespace {

constexpr int MOST_SLOTS = 160;
constexpr int DIMS = 12;
constexpr int INPUTS = 3, NUMBERS = 3;

// Elements in memory. DENSE ones are read and written where they lie; others are gathered into a slot and scattered from it. What returns in
// each block is gathered once.
enum Way : int64_t { DENSE, GATHERED, ONCE };
struct Operand {
  int64_t way, bytes, dims, sizes[DIMS], steps[DIMS];  // innermost dimension first, steps in elements
};

using Function = void (*)(void* y, void* const* x, const int64_t* numbers, int64_t n);
struct Row {
  Function function;
  int64_t target, inputs[INPUTS], numbers[NUMBERS];  // inputs: slots
};

// Numbers are the first slots, filled before the first block; then come the operands, then values in between.
struct Program {
  int64_t images, each;  // elements in all: the product
  int64_t block, numbers, loads, stores, rows, slots, room;
};

thread_local Scratch block_scratch;

template <typename W, bool SCATTER> void move(W* dense, W* place, const Operand& o, int64_t begin, int64_t n) {
  int64_t index[DIMS] = {}, rest = begin;
  for (int64_t d = 0; d < o.dims; ++d) {
    index[d] = d + 1 < o.dims ? rest % o.sizes[d] : rest;
    rest /= o.sizes[d];
    place += index[d] * o.steps[d];
  }
  const int64_t step = o.steps[0];
  while (n > 0) {
    const int64_t left = o.sizes[0] - index[0], run = left < n ? left : n;
    if (SCATTER) {
      for (int64_t i = 0; i < run; ++i) place[i * step] = dense[i];
    } else if (step == 1) {
      if (run < 32) for (int64_t i = 0; i < run; ++i) dense[i] = place[i];
      else std::memcpy(dense, place, sizeof(W) * size_t(run));
    } else if (step == 0) {
      const W one = *place;
      for (int64_t i = 0; i < run; ++i) dense[i] = one;
    } else {
      for (int64_t i = 0; i < run; ++i) dense[i] = place[i * step];
    }
    dense += run, n -= run, index[0] += run, place += run * step;
    for (int64_t d = 0; index[d] == o.sizes[d] && d + 1 < o.dims; ++d) {
      place += o.steps[d + 1] - o.sizes[d] * o.steps[d];
      index[d] = 0, ++index[d + 1];
    }
  }
}

template <bool SCATTER> void move(char* dense, char* place, const Operand& o, int64_t begin, int64_t n) {
  if (o.bytes == 4) move<uint32_t, SCATTER>((uint32_t*)dense, (uint32_t*)place, o, begin, n);
  else if (o.bytes == 8) move<uint64_t, SCATTER>((uint64_t*)dense, (uint64_t*)place, o, begin, n);
  else if (o.bytes == 1) move<uint8_t, SCATTER>((uint8_t*)dense, (uint8_t*)place, o, begin, n);
  else move<uint16_t, SCATTER>((uint16_t*)dense, (uint16_t*)place, o, begin, n);
}

}  // namespace

// Operands: those that are read, then those that are written. Parameters: a Program; of each slot where it begins in the scratch; of each number
// its bytes and its bits; an Operand for each operand; the Rows.
GRADLAB_KERNEL gradlab_interpret(char** p, const int64_t* v, int part, int parts) {
  const Program& program = *(const Program*)v;
  const int64_t* const starts = v + sizeof(Program) / sizeof(int64_t);
  const int64_t* const numbers = starts + program.slots;
  const int64_t memory = program.loads + program.stores, block = program.block;
  const Operand* const operands = (const Operand*)(numbers + 2 * program.numbers);
  const Row* const rows = (const Row*)(operands + memory);
  const Share mine = share(program.images * program.each, part, parts, block);
  if (mine.first >= mine.last) return;
  char* const room = (char*)block_scratch.of(size_t(program.room));
  if (room == nullptr) return no_memory(p);
  char* at[MOST_SLOTS];
  for (int64_t i = 0; i < program.slots; ++i) at[i] = room + starts[i];
  const int64_t most = block < mine.last - mine.first ? block : mine.last - mine.first;
  Operand number = {GATHERED, 0, 1, {block}, {0}};
  for (int64_t i = 0; i < program.numbers; ++i) {
    number.bytes = numbers[2 * i];
    move<false>(at[i], (char*)(numbers + 2 * i + 1), number, 0, most);
  }
  char** const places = at + program.numbers;
  for (int64_t i = 0; i < program.loads; ++i)
    if (operands[i].way == ONCE) move<false>(places[i], p[i], operands[i], mine.first, most);
  for (int64_t begin = mine.first; begin < mine.last; begin += block) {
    const int64_t n = mine.last - begin < block ? mine.last - begin : block;
    for (int64_t i = 0; i < memory; ++i) {
      if (operands[i].way == DENSE) places[i] = p[i] + begin * operands[i].bytes;
      else if (operands[i].way == GATHERED && i < program.loads) move<false>(places[i], p[i], operands[i], begin, n);
    }
    for (const Row *row = rows, *end = rows + program.rows; row != end; ++row) {
      void* const inputs[INPUTS] = {at[row->inputs[0]], at[row->inputs[1]], at[row->inputs[2]]};
      row->function(at[row->target], inputs, row->numbers, n);
    }
    for (int64_t i = program.loads; i < memory; ++i)
      if (operands[i].way != DENSE) move<true>(places[i], p[i], operands[i], begin, n);
  }
}

// One row on NumPy arrays in one call, which Python makes as that of a builtin function: some 100 ns where ctypes takes 2 microseconds.
// No header of Python's is read: what is needed of it comes as addresses (backends/native/calling.py).
#ifndef GRADLAB_ROW_CALL_H
#define GRADLAB_ROW_CALL_H

#include "aligned.h"
#include "runtime.h"

extern "C" int64_t gradlab_run(const Task* tasks, int64_t first, int64_t last, char** bases, int64_t wanted);

// A row: its tasks, whose bases are work space, the status, and then the arrays. word: where an array object keeps the address of its elements, which
// are to lie at multiples of `aligned` bytes. dense: bits of the arrays that have to lie row by row without gaps. each: where it is not 0, one
// loop over arrays of one size or of one element (bits `single`), whatever that size, which is the first of `parameters` numbers; so many elements
// are worth a thread. large: whether other threads of Python may run meanwhile. strides: where it is given, of each input how many dimensions it has
// and then its strides in bytes, which it has to have.
struct Row {
  const Task* tasks;
  int64_t count, arrays, scratch, word, aligned, dense, single, each, parameters, large, inputs;
  const int64_t* strides;
};

namespace {

constexpr int64_t NO_ROOM = -2, OTHER = -3;  // work space or alignment is missing; the arrays lie otherwise than the row takes them
constexpr int64_t NUMBERS = 64, LARGE = 1 << 15;

struct Python {
  void* (*from_long)(long);
  void* (*address)(void*);
  void* (*item)(void*, intptr_t);
  void* (*release)();
  void (*restore)(void*);
  const int64_t* threads;
  int64_t dimensions, sizes, flags;  // an array object's: their number (an int), the sizes, what is known of how it lies (an int): words
};
Python python;

inline int64_t elements(char** array) {
  const int dimensions = *(const int*)(array + python.dimensions);
  const int64_t* const sizes = (const int64_t*)array[python.sizes];
  int64_t n = 1;
  for (int i = 0; i < dimensions; ++i) n *= sizes[i];
  return n;
}

// Whether the inputs lie as the row says. An array object keeps its strides behind its sizes.
inline bool as_strided(const Row* row, char** const* objects) {
  const int64_t* wanted = row->strides;
  for (int64_t i = 0; i < row->inputs; ++i) {
    const int64_t n = *wanted++;
    const int64_t* const strides = (const int64_t*)objects[i][python.sizes + 1];
    if (*(const int*)(objects[i] + python.dimensions) != n) return false;
    for (int64_t d = 0; d < n; ++d)
      if (strides[d] != *wanted++) return false;
  }
  return true;
}

inline int64_t run_row(const Row* row, char** const* objects, int64_t threads, bool may_wait) {
  char* bases[MAX_PLACES + 2];
  int64_t status[8] = {};
  for (int64_t i = 0; i < row->arrays; ++i) {
    bases[2 + i] = objects[i][row->word];
    if ((uintptr_t)bases[2 + i] % (uintptr_t)row->aligned != 0) return NO_ROOM;
    if ((row->dense >> i & 1) != 0 && (*(const int*)(objects[i] + python.flags) & 1) == 0) return OTHER;
  }
  if (row->strides != nullptr && !as_strided(row, objects)) return OTHER;
  bases[0] = nullptr;
  bases[1] = (char*)status;
  Task one;
  const Task* tasks = row->tasks;
  int64_t numbers[NUMBERS];
  bool large = row->large != 0;
  if (row->each != 0) {
    const int64_t n = elements((char**)objects[row->arrays - 1]);
    for (int64_t i = 0; i + 1 < row->arrays; ++i)
      if (elements((char**)objects[i]) != ((row->single >> i & 1) != 0 ? 1 : n)) return OTHER;
    if (n == 0) return -1;
    one = tasks[0];
    std::memcpy(numbers, one.parameters, size_t(row->parameters) * sizeof(int64_t));
    numbers[0] = n;
    one.parameters = numbers;
    one.widest = n / row->each < 1 ? 1 : n / row->each < 64 ? n / row->each : 64;
    tasks = &one;
    large = n / row->each >= 1 || n >= LARGE;
  }
  void* const state = may_wait && large ? python.release() : nullptr;
  void* const space = row->scratch > 0 ? aligned_new(64, (size_t)row->scratch) : nullptr;
  int64_t stopped = NO_ROOM;
  if (row->scratch <= 0 || space != nullptr) {
    bases[0] = (char*)space;
    stopped = gradlab_run(tasks, 0, row->count, bases, threads);
    aligned_delete(space);
  }
  if (state != nullptr) python.restore(state);
  return stopped;
}

}  // namespace

#endif

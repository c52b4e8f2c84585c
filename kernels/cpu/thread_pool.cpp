// The pool: threads that wait for a task a short while awake, then asleep. One program uses it at a time; another that runs in the
// meantime does its tasks on its own thread. A forked child begins with no workers.
//
// Written with the compiler's atomics and POSIX threads: the headers of C++ take longer to read than this takes to compile.
#include "row_call.h"

#include <pthread.h>
#include <sched.h>

#include <new>

namespace {

constexpr int SPINS = 4000;  // of a pause each: some 20 to 100 microseconds

inline void pause_a_little() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Pool {
  // The task under way: its round, how many parts it has, and the next that nobody has taken. Whoever takes a part does it, so a worker that
  // sleeps, or whose core is busy elsewhere, keeps nobody waiting. What follows is written only when no part is left.
  uint64_t ticket = 0;
  int64_t done = 0;
  int asleep = 0;
  bool busy = false;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  Kernel kernel = nullptr;
  char** pointers = nullptr;
  const int64_t* parameters = nullptr;
  int workers = 0;
  alignas(64) int64_t missing[COUNTER + COUNTERS * COUNTER] = {};  // pieces of the task, and in front of them whether one found no memory
  int64_t* taken() { return missing + COUNTER; }

  uint64_t round() { return __atomic_load_n(&ticket, __ATOMIC_SEQ_CST) >> 32; }

  void take() {
    uint64_t seen = __atomic_load_n(&ticket, __ATOMIC_ACQUIRE);
    for (;;) {
      const int part = int(seen & 0xffff), parts = int(seen >> 16 & 0xffff);
      if (part >= parts) return;
      if (!__atomic_compare_exchange_n(&ticket, &seen, seen + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
      kernel(pointers, parameters, part, parts);
      __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
      seen = __atomic_load_n(&ticket, __ATOMIC_ACQUIRE);
    }
  }

  void work(uint64_t seen) {
    for (;;) {
      int spins = 0;
      while (round() == seen) {
        if (++spins < SPINS) {
          pause_a_little();
          continue;
        }
        pthread_mutex_lock(&mutex);
        __atomic_fetch_add(&asleep, 1, __ATOMIC_SEQ_CST);
        while (round() == seen) pthread_cond_wait(&wake, &mutex);
        __atomic_fetch_sub(&asleep, 1, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&mutex);
      }
      seen = round();
      take();
    }
  }

  struct Worker {
    Pool* pool;
    uint64_t seen;
  };
  static void* begin(void* given) {
    Worker* const worker = (Worker*)given;
    const Worker own = *worker;
    free(worker);
    own.pool->work(own.seen);
    return nullptr;
  }
  // Where the system gives no more threads, or no memory for them, those that there are do the work.
  int grow(int threads) {
    while (workers + 1 < threads) {
      Worker* const worker = (Worker*)malloc(sizeof(Worker));
      if (worker == nullptr) break;
      *worker = {this, round()};
      pthread_t thread;
      if (pthread_create(&thread, nullptr, begin, worker) != 0) {
        free(worker);
        break;
      }
      pthread_detach(thread);
      ++workers;
    }
    return workers + 1 < threads ? workers + 1 : threads;
  }

  void go(const Task& task, char** given, int threads) {
    kernel = task.kernel;
    pointers = given;
    given[TAKEN] = (char*)taken();
    taken()[MISSING] = 0;
    parameters = task.parameters;
    const int parts = int(task.widest < threads ? task.widest : threads);
    for (int i = 0; i < parts && i < COUNTERS; ++i) taken()[i * COUNTER] = 0;
    __atomic_store_n(&done, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&ticket, (round() + 1) << 32 | uint64_t(parts) << 16, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) > 0) {
      pthread_mutex_lock(&mutex);
      pthread_mutex_unlock(&mutex);
      pthread_cond_broadcast(&wake);
    }
    take();
    int spins = 0;
    while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < parts) {
      if (++spins < SPINS) pause_a_little();
      else sched_yield();
    }
  }
};

Pool* pool = nullptr;  // never freed: its threads may outlive static objects

void forget() { pool = nullptr; }

Pool* the_pool() {
  if (pool == nullptr) {
    void* const room = aligned_new(alignof(Pool), sizeof(Pool));
    if (room == nullptr) return nullptr;
    pool = new (room) Pool;
    static bool registered = false;
#if !defined(_WIN32)
    if (!registered) registered = pthread_atfork(nullptr, nullptr, forget) == 0;
#endif
  }
  return pool;
}

}  // namespace

// Run tasks first..last-1 of a table on `threads` threads. The first word of base 1 is the status: a task that sets it stops the run.
// Returns that task's number, -1, or NO_MEMORY where a kernel found none, whose results are not made.
extern "C" int64_t gradlab_run(const Task* tasks, int64_t first, int64_t last, char** bases, int64_t wanted) {
  char* pointers[MAX_PLACES + 1];
  int64_t missing[2], &taken = missing[1];  // alone it takes from one range
  Pool* const mine = wanted > 1 ? the_pool() : nullptr;
  const bool parallel = mine != nullptr && !__atomic_test_and_set(&mine->busy, __ATOMIC_ACQUIRE);
  const int threads = parallel ? mine->grow(int(wanted)) : 1;
  const volatile int64_t* status = (const int64_t*)bases[1];
  int64_t stopped = -1;
  for (int64_t i = first; i < last; ++i) {
    const Task& task = tasks[i];
    for (int64_t j = 0; j < task.count; ++j) pointers[j] = bases[task.places[j].base] + task.places[j].offset;
    bool none;
    if (threads > 1 && task.widest > 1) {
      mine->go(task, pointers, threads);
      none = mine->taken()[MISSING] != 0;
    } else {
      pointers[TAKEN] = (char*)&taken;
      missing[0] = taken = 0;
      task.kernel(pointers, task.parameters, 0, 1);
      none = missing[0] != 0;
    }
    if (none) {
      stopped = NO_MEMORY;
      break;
    }
    if (*status != 0) {
      stopped = i;
      break;
    }
  }
  if (parallel) __atomic_clear(&mine->busy, __ATOMIC_RELEASE);
  return stopped;
}

// A whole program in one call, its bases filled first; the arguments of the functions around this one in one place, made once.
struct Whole {
  const Task* tasks;
  int64_t first, last;
  char** bases;
  int64_t threads;
  char*** objects;
  int64_t count, word, at;
};
extern "C" int64_t gradlab_step(const Whole* w) {
  for (int64_t i = 0; i < w->count; ++i) w->bases[w->at + i] = w->objects[i][w->word];
  return gradlab_run(w->tasks, w->first, w->last, w->bases, w->threads);
}

// Data pointers of NumPy arrays into the table of bases: `word` is where an array object keeps its pointer.
extern "C" void gradlab_bases(char** bases, char*** objects, int64_t count, int64_t word) {
  for (int64_t i = 0; i < count; ++i) bases[i] = objects[i][word];
}

extern "C" void gradlab_python(const Python* given) { python = *given; }

// As the function of a PyMethodDef with METH_FASTCALL; `self` is a tuple whose first element is the row's address. Gives -1; the task that set the
// status; NO_ROOM or OTHER, and nothing is done. Any number of threads may run one row at once.
extern "C" void* gradlab_row_call(void* self, char*** objects, intptr_t count) {
  const Row* const row = (const Row*)python.address(python.item(self, 0));
  return python.from_long(long(count == row->arrays ? run_row(row, objects, *python.threads, true) : OTHER));
}

// The same by ctypes, which has let other threads go on.
extern "C" int64_t gradlab_row(const Row* row, char*** objects, int64_t threads) { return run_row(row, objects, threads, false); }

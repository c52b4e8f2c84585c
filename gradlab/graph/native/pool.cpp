// The pool: threads that wait for a task a short while awake, then asleep. One program uses it at a time; another that runs in the
// meantime does its tasks on its own thread. A forked child begins with no workers.
#include "runtime.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>

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
  std::atomic<int64_t> round{0};
  std::atomic<int> left{0}, asleep{0};
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  std::mutex mutex;
  std::condition_variable wake;
  Kernel kernel = nullptr;
  char** pointers = nullptr;
  const int64_t* parameters = nullptr;
  int parts = 1;
  std::vector<std::thread> workers;

  void work(int number, int64_t seen) {
    for (;;) {
      int spins = 0;
      while (round.load(std::memory_order_acquire) == seen) {
        if (++spins < SPINS) {
          pause_a_little();
          continue;
        }
        std::unique_lock<std::mutex> lock(mutex);
        asleep.fetch_add(1);
        wake.wait(lock, [&] { return round.load() != seen; });
        asleep.fetch_sub(1);
      }
      ++seen;
      if (number < parts) kernel(pointers, parameters, number, parts);
      left.fetch_sub(1, std::memory_order_release);
    }
  }

  void grow(int threads) {
    while (int(workers.size()) + 1 < threads) {
      const int number = int(workers.size()) + 1;
      const int64_t seen = round.load();
      workers.emplace_back([this, number, seen] { work(number, seen); });
    }
  }

  void go(const Task& task, char** given, int threads) {
    kernel = task.kernel;
    pointers = given;
    parameters = task.parameters;
    parts = int(task.widest < threads ? task.widest : threads);
    left.store(int(workers.size()), std::memory_order_relaxed);
    round.fetch_add(1);
    if (asleep.load() > 0) {
      { std::lock_guard<std::mutex> lock(mutex); }
      wake.notify_all();
    }
    kernel(given, parameters, 0, parts);
    int spins = 0;
    while (left.load(std::memory_order_acquire) > 0) {
      if (++spins < SPINS) pause_a_little();
      else sched_yield();
    }
  }
};

Pool* pool = nullptr;  // never freed: its threads may outlive static objects

void forget() { pool = nullptr; }

Pool& the_pool() {
  if (pool == nullptr) {
    pool = new Pool;
    static const int registered = pthread_atfork(nullptr, nullptr, forget);
    (void)registered;
  }
  return *pool;
}

}  // namespace

// Run tasks first..last-1 of a table on `threads` threads. The first word of base 1 is the status: a task that sets it stops the run.
// Returns that task's number, or -1.
extern "C" int64_t gradlab_run(const Task* tasks, int64_t first, int64_t last, char** bases, int64_t threads) {
  char* pointers[MAX_PLACES];
  Pool& mine = the_pool();
  const bool parallel = threads > 1 && !mine.busy.test_and_set(std::memory_order_acquire);
  if (parallel) mine.grow(int(threads));
  const volatile int64_t* status = (const int64_t*)bases[1];
  int64_t stopped = -1;
  for (int64_t i = first; i < last; ++i) {
    const Task& task = tasks[i];
    for (int64_t j = 0; j < task.count; ++j) pointers[j] = bases[task.places[j].base] + task.places[j].offset;
    if (parallel && task.widest > 1) mine.go(task, pointers, int(threads));
    else task.kernel(pointers, task.parameters, 0, 1);
    if (*status != 0) {
      stopped = i;
      break;
    }
  }
  if (parallel) mine.busy.clear(std::memory_order_release);
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

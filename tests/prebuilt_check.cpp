// Runs a few prebuilt kernels where there is no Python for the machine: a softmax on two threads, a copy, and every vector function that is
// named. By hand (test_prebuilt_aarch64.py): prebuilt_check FOLDER LEVEL FUNCTION...
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

using Kernel = void (*)(char**, const int64_t*, int, int);
using Function = void (*)(void*, void* const*, const int64_t*, int64_t);
struct Place { int64_t base, offset; };
struct Task { Kernel kernel; const int64_t* parameters; const Place* places; int64_t count, widest; };

static void* opened(const char* folder, const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.so", folder, name);
  void* found = dlopen(path, RTLD_NOW);
  if (found == nullptr) printf("%s\n", dlerror()), exit(1);
  return found;
}

int main(int count, char** given) {
  char name[256];
  void* runtime = opened(given[1], "runtime");
  snprintf(name, sizeof name, "kernels-%s", given[2]);
  void* kernels = opened(given[1], name);
  snprintf(name, sizeof name, "loops-%s", given[2]);
  void* loops = opened(given[1], name);
  printf("level %d\n", ((int (*)())dlsym(runtime, "gradlab_processor_level"))());

  constexpr int64_t ROWS = 300, N = 77;
  static float x[ROWS * N], y[ROWS * N];
  static int64_t status[8];
  for (int64_t i = 0; i < ROWS * N; ++i) x[i] = sinf(float(i)) * 5;
  char* bases[] = {(char*)y, (char*)status, (char*)x};
  const int64_t sizes[] = {ROWS, N};
  const Place places[] = {{0, 0}, {2, 0}};
  const Task task = {(Kernel)dlsym(kernels, "gradlab_softmax"), sizes, places, 2, 8};
  const auto run = (int64_t(*)(const Task*, int64_t, int64_t, char**, int64_t))dlsym(runtime, "gradlab_run");
  if (run(&task, 0, 1, bases, 2) != -1) return puts("stopped"), 1;
  double worst = 0;
  for (int64_t r = 0; r < ROWS; ++r) {
    double total = 0;
    for (int64_t i = 0; i < N; ++i) total += exp(double(x[r * N + i]));
    for (int64_t i = 0; i < N; ++i) worst = fmax(worst, fabs(y[r * N + i] - exp(double(x[r * N + i])) / total));
  }
  printf("softmax %g\n", worst);
  for (int i = 3; i < count; ++i) {
    const Function f = (Function)dlsym(loops, given[i]);
    if (f == nullptr) return printf("no %s\n", given[i]), 1;
    void* const inputs[] = {x, x, x};
    f(y, inputs, sizes, N);
    printf("%s %.9g %.9g\n", given[i], y[0], y[1]);
  }
  return worst < 1e-6 ? 0 : 1;
}

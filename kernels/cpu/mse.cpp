// The mean square of differences. float, contiguous.
#include "sums.h"

// y, a, b; parameters: elements, whether to take the mean
GRADLAB_KERNEL gradlab_mse(char** p, const int64_t* v, int, int) {
  const float *a = (const float*)p[1], *b = (const float*)p[2];
  double sum = 0;
  for (int64_t first = 0; first < v[0]; first += 4096) {
    const int64_t n = v[0] - first < 4096 ? v[0] - first : 4096;
    sum += total(n, [=](int64_t i) { const float d = a[first + i] - b[first + i]; return d * d; });
  }
  *(float*)p[0] = float(v[1] ? sum / double(v[0]) : sum);
}

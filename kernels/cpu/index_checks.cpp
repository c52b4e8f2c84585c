// Indices that come with a program's arguments are checked before anything is written.
#include "runtime.h"

// indices, status; parameters: how many, the limit, an index that is ignored
GRADLAB_KERNEL gradlab_check_indices(char** p, const int64_t* v, int, int) {
  const int64_t* const at = (const int64_t*)p[0];
  int64_t bad = 0;
  for (int64_t i = 0; i < v[0]; ++i) bad |= (at[i] < 0 | at[i] >= v[1]) & (at[i] != v[2]);
  if (bad) *(int64_t*)p[1] = 1;
}

// Matrix products in float32, and packing. Parts of the file: 8 rows of A whose elements are beside each other, 9 others, 10 halves.
#include "needs.h"
#define GRADLAB_ROWS (needed(8) + 2 * needed(9))
#include "epilogues.h"
#include "product.h"

// panels, b; parameters: n k, b_row b_column
GRADLAB_KERNEL gradlab_pack_float(char** p, const int64_t* v, int part, int parts) {
  const Product q = {0, v[0], v[1], 0, 0, v[2], v[3], 0, false, false};
  const Share mine = share(v[0], part, parts, PANEL<float>);
  if (mine.first < mine.last)
    pack((const float*)p[1], q, 0, q.k, mine.first, mine.last - mine.first, (float*)p[0] + mine.first * q.k);
}

GRADLAB_KERNEL gradlab_product_float(char** p, const int64_t* v, int part, int parts) { product<float, Ends>(p, v, part, parts); }

// c, rest: c += rest; parameters: elements
GRADLAB_KERNEL gradlab_add_rest(char** p, const int64_t* v, int part, int parts) {
  float* c = (float*)p[0];
  const float* rest = (const float*)p[1];
  const Share mine = share(v[0], part, parts, 64);
  int64_t i = mine.first;
  for (; i + L <= mine.last; i += L) store(c + i, load(c + i) + load(rest + i));
  for (; i < mine.last; ++i) c[i] += rest[i];
}

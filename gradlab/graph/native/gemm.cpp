// Matrix products in float32, and packing.
#include "product.h"

// panels, b; parameters: n k, b_row b_column
GRADLAB_KERNEL gradlab_pack_float(char** p, const int64_t* v, int part, int parts) {
  const Product q = {0, v[0], v[1], 0, 0, v[2], v[3], 0, false, false};
  const Share mine = share(v[0], part, parts, PANEL<float>);
  if (mine.first < mine.last)
    pack((const float*)p[1], q, 0, q.k, mine.first, mine.last - mine.first, (float*)p[0] + mine.first * q.k);
}
extern "C" int64_t gradlab_panel_float() { return PANEL<float>; }

GRADLAB_KERNEL gradlab_product_float(char** p, const int64_t* v, int part, int parts) { product<float>(p, v, part, parts); }

// 3×3 convolution of stride 1 by Winograd's algorithm F(2×2, 3×3), whose products are those of pairs of bfloat16
// numbers (pairs.h); results are rounded, before a pooling chooses among them.
#include "winograd_results.h"

GRADLAB_KERNEL gradlab_winograd_weights_bfloat16(char** p, const int64_t* v, int part, int parts) { weigh<2, Pair>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_winograd_bfloat16(char** p, const int64_t* v, int part, int parts) { correlate<2, Pair>(p, v, part, parts); }

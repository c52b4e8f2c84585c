// The gradient of a 3×3 convolution's weight by Winograd's algorithm F(2×2, 3×3), by products of pairs of bfloat16 numbers (pairs.h).
#include "winograd_weight_gradient.h"

GRADLAB_KERNEL gradlab_winograd_dw_bfloat16(char** p, const int64_t* v, int part, int parts) { slope<2, Pair>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_winograd_dw_sum_bfloat16(char** p, const int64_t* v, int part, int parts) { add_blocks(p, v, part, parts); }

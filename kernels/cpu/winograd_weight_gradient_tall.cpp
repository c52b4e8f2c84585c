// The gradient of a 3×3 convolution's weight by Winograd's algorithm F(4×2, 3×3).
#include "winograd_weight_gradient.h"

GRADLAB_KERNEL gradlab_winograd_dw_tall(char** p, const int64_t* v, int part, int parts) { slope<4>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_winograd_dw_sum_tall(char** p, const int64_t* v, int part, int parts) { add_blocks(p, v, part, parts); }

// 3×3 convolution of stride 1 by Winograd's algorithm F(4×2, 3×3).
#include "winograd_results.h"

GRADLAB_KERNEL gradlab_winograd_weights_tall(char** p, const int64_t* v, int part, int parts) { weigh<4>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_winograd_tall(char** p, const int64_t* v, int part, int parts) { correlate<4>(p, v, part, parts); }

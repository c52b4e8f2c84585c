// Matrix products in float64.
#include "product.h"

GRADLAB_KERNEL gradlab_product_double(char** p, const int64_t* v, int part, int parts) { product<double, NoEnding>(p, v, part, parts); }

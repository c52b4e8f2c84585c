// Matrix products of float32 operands that are rounded to bfloat16 (pairs.h). Parts of the file are those of gemm.cpp.
#include "epilogues.h"
#include "pairs.h"
#include "product.h"

GRADLAB_KERNEL gradlab_product_bfloat16(char** p, const int64_t* v, int part, int parts) { product<float, Ends, Pairs>(p, v, part, parts); }

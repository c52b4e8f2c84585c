"""Being written by the families worker (sorting, segments, triangles, dynamic rows, permutation/multinomial/poisson, median): please leave."""

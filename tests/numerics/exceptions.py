"""Where PyTorch is more exact by more than a factor of two, and why that stays: patterns of "part entry dtype form"."""

SMALL = "at most 2 units"
EXCEPTIONS: dict[str, str] = {
    SMALL: "At most 2 ulp: vector loops of polynomials, ours or NumPy's. PyTorch's library (SLEEF) promises 1 ulp for the same functions; "
           "on these points it has less.",
    "y (exp|F.softplus|F.logsigmoid) float32 numpy|d0 exp float32 numpy":
        "NumPy's own float32 `exp`, off by up to 2.1 ulp, and what is made of it.",
    "y erfc float32 .*":
        "The exponential times a quotient of polynomials, up to 3 ulp: a branch-free float32 loop, which GELU runs at every step.",
    "d0 (tanh|F.tanhshrink) .*":
        "The slope is computed from the result, 1 - y², as PyTorch's: where y has been rounded to nearly 1 (or the slope itself nearly "
        "cancels) no digits are left in either.",
    "y mean 0 float32 .*|y F.triplet_margin_loss float32 machine|d0 F.bilinear float32 .*":
        "Sums in another order than PyTorch's: within 3 eps of the sum of magnitudes, or of the result.",
    "y (erf|erfc) float64 numpy|y erfinv float64 .*":
        "Published rational approximations of 16 digits (Cody 1969, Wichura 1988): within 4 ulp. Machine code has the C library's erf.",
    "d0 (erfinv|special.ndtri) float64 .*":
        "The slope is the exponential of the result's square: the result's own units, times that square.",
    "y lgamma float64 .*": "Next to a zero left of 0, where reflection subtracts two numbers of size 1: a few ulp of these.",
    "y logaddexp2 float64 .*|d0 F.silu float64 .*": "Next to a zero, where two numbers of size 1 cancel: an ulp or two of these.",
    "y F.mish float64 machine": "tanh of a logarithm, each rounded: within 3 ulp.",
}  # fmt: skip

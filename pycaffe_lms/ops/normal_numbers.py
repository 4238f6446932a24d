"""Hold the constants that make two normal variates of two random words, in the same float32 steps on every device.

With words a and b, u = (a + 1/2) / 2^32 and an angle t from b, the variates are r cos t and r sin t, where
r = sqrt(-2 ln u) (Box and Muller, 1958). ln, sin and cos are the polynomials of logf, sinf and cosf in S. Moshier's
Cephes library. All steps are IEEE additions, products and square roots, each rounded by itself, so that every device
gives the same bits; no variate is farther from 0 than 6.77.
"""

from __future__ import annotations

import math

import numpy as np

_F = np.float32

# ln(1 + x) = x - x^2 / 2 + x^3 P(x), from the highest power on; 1 + x lies between sqrt(1/2) and sqrt(2)
LOG = tuple(
    map(
        _F,
        (
            *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
            *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
        ),
    )
)
LN2 = _F(0.693359375), _F(-2.12194440e-4)  # the sum is ln 2; the first times an exponent is exact
SQRT_HALF_BITS = 0x3F3504F3  # of the float32 nearest to sqrt(1/2)
# sin t = t + t z S(z) and cos t = 1 - z / 2 + z^2 C(z) with z = t^2, for t between -pi / 4 and pi / 4
SIN = tuple(map(_F, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)))
COS = tuple(map(_F, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)))
ANGLE = _F(math.pi / 4 / 2**31)  # of one step of b's lower 30 bits, as the upper bits of a signed word

"""Hold the constants of an exponential that is the same on every device, to the bit.

e^x = 2^k e^r with k = floor(x / ln 2 + 1/2) and r = x - k ln 2, and e^r is its Taylor series to the 13th power: for
|r| <= ln(2) / 2 the rest is below 1e-17. All steps are float64 additions and products, each rounded by itself.
"""

from __future__ import annotations

import math

PER_LN2 = 1 / math.log(2)
LN2_HIGH = math.ldexp(math.floor(math.ldexp(math.log(2), 32)), -32)  # its products with k are exact
LN2_LOW = 1.9082149292705877e-10  # the sum is ln 2, to 2^-86
TERMS = tuple(1 / math.factorial(n) for n in range(13, -1, -1))  # from the highest power on
LARGEST, LEAST = 709.8, -745.2  # beyond: infinity and 0

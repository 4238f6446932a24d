"""Plan programs: look-ahead, eviction, search over rules, copy reordering, host slots and lowering.

Begin with `choose.py`, then `lookahead.py` (fixed look-ahead) and `optimise.py` (by predicted time).
"""

"""From a program to a plan: look-ahead, eviction, search, the order of copies, host slots, lowering."""

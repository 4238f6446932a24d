"""Join, cut, move, combine and reduce arrays on the CPU."""

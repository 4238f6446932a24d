"""Join, cut, move, combine and reduce arrays on CUDA devices."""

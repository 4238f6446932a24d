"""Queue kernels and library calls on the current stream of a GPU."""

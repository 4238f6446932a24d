"""Compute convolutions by cuDNN on CUDA devices."""

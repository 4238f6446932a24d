"""Pooling and regions of interest, on CUDA devices."""

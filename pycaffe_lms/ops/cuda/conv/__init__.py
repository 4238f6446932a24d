"""Compute convolutions and products with weights on CUDA devices."""

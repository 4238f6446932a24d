"""Convolutions and products with weights, on CUDA devices."""

"""Compute convolutions and products with weights on the CPU."""

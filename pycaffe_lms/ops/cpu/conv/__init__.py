"""Convolutions and products with weights, on the CPU."""

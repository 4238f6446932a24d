"""Compute convolutions and products by oneDNN on the CPU."""

"""Pooling and regions of interest, on the CPU."""

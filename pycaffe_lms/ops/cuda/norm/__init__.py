"""Normalise on CUDA devices."""

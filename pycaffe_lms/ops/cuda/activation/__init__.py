"""Activations, on CUDA devices."""

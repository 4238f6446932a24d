"""Compute activations on CUDA devices."""

"""Compute losses and accuracy on CUDA devices."""

"""Losses and accuracy, on CUDA devices."""

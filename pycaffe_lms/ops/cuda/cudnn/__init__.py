"""Convolutions by cuDNN, on CUDA devices."""

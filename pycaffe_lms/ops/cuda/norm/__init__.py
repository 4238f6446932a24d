"""Normalisations, on CUDA devices."""

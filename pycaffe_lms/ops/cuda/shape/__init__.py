"""Joining, cutting, moving, combining and reducing arrays, on CUDA devices."""

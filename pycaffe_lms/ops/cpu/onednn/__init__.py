"""Convolutions and products by oneDNN, on the CPU."""

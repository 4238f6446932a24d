"""Activations, on the CPU."""

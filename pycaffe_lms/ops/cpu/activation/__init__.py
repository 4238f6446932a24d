"""Compute activations on the CPU."""

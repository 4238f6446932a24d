"""Compute losses and accuracy on the CPU."""

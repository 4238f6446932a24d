"""Losses and accuracy, on the CPU."""

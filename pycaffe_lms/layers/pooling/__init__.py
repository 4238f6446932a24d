"""Pooling layers, and their reverse."""

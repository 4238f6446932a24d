"""Joining, cutting, moving, combining and reducing arrays, on the CPU."""

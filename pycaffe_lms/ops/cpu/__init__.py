"""Operate on NumPy arrays: vectorised or compiled, without Python loops over pixels."""

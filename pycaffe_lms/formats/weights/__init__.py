"""Weights and solver states: caffemodel, binaryproto, HDF5."""

"""Batches for data layers: from databases, image lists, HDF5 files and windows."""

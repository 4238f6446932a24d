"""Make batches for data layers: from databases, lists of pictures, HDF5 files and windows."""

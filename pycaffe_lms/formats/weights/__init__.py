"""Read and write weights and solver states: caffemodel, binaryproto, HDF5."""

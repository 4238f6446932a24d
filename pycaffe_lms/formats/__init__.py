"""Read and write files: prototxt, caffemodel, HDF5 weights and solver states, in every generation Caffe has written."""

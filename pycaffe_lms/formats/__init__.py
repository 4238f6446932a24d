"""Files in and out: prototxt, caffemodel, HDF5 weights and solver states, in every generation Caffe has written."""

"""Where buffers lie in device memory: packing into one contiguous space, pages, in-place reuse."""

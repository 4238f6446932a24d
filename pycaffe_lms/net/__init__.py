"""From prototxt to a running net: filter, splits, wiring (pure), buffers, programs, and the Net itself."""

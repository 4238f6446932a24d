"""Keep GPU memory as a cache of host memory: the state machine, buffers, the arena and page-locked host slots."""

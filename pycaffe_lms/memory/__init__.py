"""Use GPU memory as a cache of host memory: the state machine, buffers, exported views and page-locked host slots."""

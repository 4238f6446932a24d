"""Pool planes and regions of interest on CUDA devices."""

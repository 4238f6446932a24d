"""Pool planes and regions of interest on the CPU."""

"""Lay out buffers in device memory: packing, paging, in-place reuse."""

"""Operations on the GPU: kernels and library calls queued on the current stream."""

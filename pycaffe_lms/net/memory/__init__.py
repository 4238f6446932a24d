"""Memory of a net: its buffers, what of it is managed, how it is made to fit a device."""

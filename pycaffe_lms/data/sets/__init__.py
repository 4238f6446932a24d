"""Data sets: finding, downloading, converting them."""

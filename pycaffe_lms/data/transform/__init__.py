"""Decode, resize, crop and transform pictures, subtract means, and do so with several threads."""

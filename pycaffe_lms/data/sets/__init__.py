"""Find, download and convert data sets."""

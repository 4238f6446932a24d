"""Measures training for `pycaffe-lms benchmark`: which model, in a process for each case, as a table and a chart."""

"""The work of pycaffe's own tutorials, done as their readers do it: first with the API alone, then asserted."""

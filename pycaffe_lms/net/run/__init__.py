"""Runs the steps of a net's programs, one by one or from a recording, with callbacks."""

"""Convolutions and fully connected layers: layers with weights that are multiplied."""

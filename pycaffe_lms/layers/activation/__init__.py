"""Activation layers, Dropout and Softmax."""

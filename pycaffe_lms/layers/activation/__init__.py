"""Activation layers: one value in, one value out; Dropout and Softmax among them."""

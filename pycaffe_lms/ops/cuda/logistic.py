"""Compute the logistic function, which Sigmoid, Swish, BNLL's gradient, LSTMs and a loss share."""

from __future__ import annotations

# e^x / (e^x + 1): no small result is a difference of large numbers; from x = 50 on it is 1
SIGMOID = """
template <typename E> __device__ E sigmoid(E x) {
  const E e = exp(x > 50 ? (E)50 : x);
  return e / (e + 1);
}
"""

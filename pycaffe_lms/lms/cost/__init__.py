"""Estimate the seconds of steps and copies: rates of a machine, predicted and measured times of a plan."""

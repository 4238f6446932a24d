"""What steps and copies cost: a machine's rates, predicted times of a plan, measured ones."""

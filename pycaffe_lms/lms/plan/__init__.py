"""The plan: a list of operations with the events they wait for, its proof, its live ranges and its numbers."""

"""Rematerialization: which values can be computed again instead of being kept, and what that costs."""

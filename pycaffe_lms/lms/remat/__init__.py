"""Find the values that can be rematerialized, and what that costs."""

"""Define plans, verify them, and derive their live ranges and statistics."""

"""Implement Large Model Support: choose managed buffers, plan their copies, verify the plan and execute it."""

"""Operations on NumPy arrays: vectorised, no Python loop over pixels."""

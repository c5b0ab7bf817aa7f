"""The statistics of the models: pure functions on NumPy arrays."""

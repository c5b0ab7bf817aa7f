"""Pure functions on NumPy arrays: planes, hulls, votes, cones and sketches (no Dask, no logging, no state)."""

"""Benchmarks of dask_dca: planted data, baselines, quality and speed; run by ``python -m benchmarks``."""

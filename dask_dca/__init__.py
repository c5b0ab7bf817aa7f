"""Latent-variable models of very large matrices by anchors, on Dask."""

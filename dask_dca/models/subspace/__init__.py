"""Subspace clustering."""

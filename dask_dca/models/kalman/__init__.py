"""Kalman filters."""

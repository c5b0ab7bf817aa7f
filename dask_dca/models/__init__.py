"""The models: each validates, runs passes, and finishes on the driver."""

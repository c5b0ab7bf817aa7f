"""A demonstration on real data: minerals found in an image that is mixed from their measured spectra."""

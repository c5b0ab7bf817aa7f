"""
Identify the minerals of an image by a library of known spectra, although no pixel is pure.

The spectra of nine minerals (USGS) come with this package; the image is mixed from four of them, with haze that adds a
constant to each pixel, changing light, and noise. `find_anchors(X, n, Y=library)` identifies them, and warns if the
library lacks one.

Run it in any folder: python minerals_of_a_library.py
"""

import warnings

import dask.array as da
import numpy as np

import dask_dca as dca
from dask_dca.demo import load_minerals
from dask_dca.errors import IncompleteLibraryWarning

MIXED = 4  # minerals


def mixed_pixels(spectra, seed=0, n_pixels=20_000):
    """Simulate pixels with at most 70 % of any mineral; return them and the numbers of their minerals."""
    rng = np.random.default_rng(seed)
    minerals = np.sort(rng.choice(len(spectra), MIXED, replace=False))
    shares = rng.dirichlet(np.ones(MIXED), 4 * n_pixels)
    pixels = shares[shares.max(axis=1) < 0.7][:n_pixels] @ spectra[minerals]
    pixels *= rng.uniform(0.5, 1.0, (len(pixels), 1))
    pixels += rng.uniform(0.0, 0.1, (len(pixels), 1))
    return pixels + 0.005 * rng.standard_normal(pixels.shape), minerals


def main():
    known = load_minerals()
    names, spectra = known.names, known.spectra.astype(float)
    pixels, minerals = mixed_pixels(spectra)
    image = da.from_array(pixels, chunks=(5_000, -1))
    found = dca.find_anchors(image, "auto", Y=spectra)
    print("mixed from:", ", ".join(names[mineral] for mineral in minerals))
    print("named:     ", ", ".join(names[row] for row in np.sort(found.indices)))
    print(f"a constant is mixed in: {found.offset}; unexplained: {found.unexplained:.1%} of the spread")

    absent = found.indices[0]
    others = np.delete(spectra, absent, axis=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", IncompleteLibraryWarning)
        lacking = dca.find_anchors(image, MIXED, Y=others)
    print(f"without {names[absent]} in the library: unexplained {lacking.unexplained:.1%}, noticed: {len(told) == 1}")


if __name__ == "__main__":
    main()

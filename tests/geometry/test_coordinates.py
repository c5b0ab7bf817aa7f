"""Places of rows in the subspace: the formula written out, also for what lies beyond the anchors' own directions."""

import numpy as np
import pytest

from dask_dca.geometry.moments import (
    ENTRY_BITS,
    POSITION_BITS,
    Subspace,
    SubspaceCoordinates,
    coordinates,
    length_exponent,
    noise_weight,
    subspace_frame,
)

P, R, D, ENERGY = 9, 4, 2, 2.0
RNG = np.random.default_rng(0)
BASIS = np.linalg.qr(RNG.standard_normal((P, R)))[0]
WEIGHTS, SHRINKAGE = RNG.uniform(0.5, 1.0, P), np.array([0.95, 0.9, 0.6, 0.5])
SUBSPACE = Subspace(RNG.random(P), WEIGHTS, BASIS, np.arange(R, 0.0, -1.0), SHRINKAGE, SHRINKAGE, D, 0.1, R)


@pytest.fixture(scope="module")
def placed() -> SubspaceCoordinates:
    return subspace_frame(SUBSPACE, None, ENERGY)


def expected(rows: np.ndarray, placed: SubspaceCoordinates) -> np.ndarray:
    """Coordinates, shrunk by the factors and by Wiener's share of the signal: one for the first d, one for all."""
    centred = (rows - SUBSPACE.mean) * WEIGHTS * 2.0 ** (ENTRY_BITS - length_exponent(ENERGY))
    inside, energy = centred @ BASIS, (centred**2).sum(axis=1)
    found = inside * SHRINKAGE * 2.0**POSITION_BITS
    for part, dim in ((slice(0, D), D), (slice(D, R), R)):
        near = (inside[:, :dim] ** 2).sum(axis=1)
        found[:, part] *= (near / (near + (energy - near) * noise_weight(placed, dim)))[:, None]
    return found


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
def test_places_are_shrunk_by_what_lies_outside(placed, noise):
    rows = SUBSPACE.mean + (RNG.standard_normal((50, R)) @ BASIS.T + noise * RNG.standard_normal((50, P))) / WEIGHTS
    found, wanted = coordinates(rows.copy(), placed), expected(rows, placed)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    assert noise_weight(placed, R) > noise_weight(placed, D) > 0.0


@pytest.mark.parametrize("far", [2.0**6, 2.0**12])
def test_rows_far_out_are_shrunk_alike_and_keep_their_direction(placed, far):
    rows = SUBSPACE.mean + far * (RNG.standard_normal((50, R)) @ BASIS.T + 0.3 * RNG.standard_normal((50, P))) / WEIGHTS
    found, wanted = coordinates(rows.copy(), placed), expected(rows, placed)
    lengths, limit = np.linalg.norm(wanted, axis=1), 2.0**32 - 2.0**8
    wanted *= np.minimum(1.0, limit / lengths)[:, None]  # drawn in to where positions are exact
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    assert np.abs(found).max() < 2.0**32

"""Where a mixture starts: tails of directions are candidates, anchors among them, breathing from the anchors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.held import call
from dask_dca.engine.tails import Tails, tail_means
from dask_dca.geometry.planes import directions
from dask_dca.geometry.solvers import successive_projection
from dask_dca.kernels.gaussian_forms import covariance_parameters
from dask_dca.kernels.lloyd import breathe, lloyd, spread_centres, squared_distances, within_variances
from dask_dca.kernels.mixture_em import improve, mixture_of_labels, regularization

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.kernels.lloyd import Partition
    from dask_dca.models.mixture_sample import Sample, Sampled
    from dask_dca.models.mixture_settings import MixtureSettings
    from dask_dca.models.mixture_signatures import Signatures
    from dask_dca.models.parameters import Settings

    Floats = NDArray[np.float64]

__all__ = ["choose_anchors", "choose_count", "divide", "planes_for", "start_partition"]

_PLANES: Final = 5.0  # times k ln (k + 1)
_COUNT_PASSES: Final = 15  # of expectation-maximisation for each number of components that is tried
_PATIENCE: Final = 4
_COARSE: Final = 2.0**-12  # inertia, as a share of all squares, below which distances in float32 are too coarse
_TAIL: Final = (0.02, 0.25)  # share of the rows in a tail: at most, and times 1 / k


def planes_for(n_components: int) -> int:
    """
    Choose the number of sub-problems.

    Parameters
    ----------
    n_components : int
        Number of components k.

    Returns
    -------
    int
        5 k ln(k + 1), rounded up.

    Examples
    --------
    >>> planes_for(10)
    120
    """
    return math.ceil(_PLANES * n_components * math.log(n_components + 1))


def divide(
    rows: Rows, sample: Sampled, signatures: Signatures, n_components: int, settings: Settings, run: Run
) -> Tails:
    """
    Look along random directions of the signatures for the rows furthest out.

    Parameters
    ----------
    rows : Rows
        The data.
    sample : Sampled
        Some of its rows.
    signatures : Signatures
        The map to signatures.
    n_components : int
        Number of components k.
    settings : Settings
        Number of directions, where they come from, seed.
    run : Run
        How passes are run.

    Returns
    -------
    Tails
        Of all rows, on both sides of each direction.
    """
    s = settings.n_subproblems or planes_for(n_components)
    share = min(_TAIL[0], _TAIL[1] / n_components)
    found = call(run, "directions", _directions, sample.held, signatures, settings, s, share)
    return tail_means(rows, signatures.scaling, signatures.coordinates, signatures.offset, *found, run)


def _directions(
    sample: Sample, signatures: Signatures, settings: Settings, s: int, share: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Spreads of the coordinates, directions in them, and between which heights all but a share at each end are."""
    places = signatures.places(sample)
    spreads = np.sqrt((places**2).mean(axis=0))
    spreads = np.where(spreads > 0.0, spreads, max(float(spreads.max()), 1e-300))
    axes = directions(settings.ensemble, settings.seed, np.arange(s), spreads, signatures.coordinates)
    low, high = np.quantile(places @ axes.T, [share, 1.0 - share], axis=0)
    return spreads, axes, low, high


def choose_anchors(candidates: Floats, n_components: int) -> Floats:
    """
    Choose k of the candidates: the conquer step.

    Parameters
    ----------
    candidates : ndarray of float64, shape (c, d)
        Means of tails.
    n_components : int
        How many to choose.

    Returns
    -------
    ndarray of float64, shape (k, d)
        By successive projection; by farthest points where there are more components than dimensions allow.

    Examples
    --------
    >>> choose_anchors(np.array([[1.0, 0.0], [0.0, 1.0], [0.4, 0.4], [-1.0, -1.0]]), 3)
    array([[-1., -1.],
           [ 1.,  0.],
           [ 0.,  1.]])
    """
    size = float(np.sqrt((candidates**2).sum(axis=1).mean()))
    lifted = np.hstack([np.full((len(candidates), 1), size), candidates])
    chosen = successive_projection(lifted, n_components)
    if len(chosen) < n_components:
        chosen = _farthest_points(candidates, n_components)
    return candidates[chosen]


def _farthest_points(points: Floats, k: int) -> NDArray[np.int64]:
    chosen = [int((points**2).sum(axis=1).argmax())]
    closest = squared_distances(points, points[chosen])[:, 0]
    for _ in range(k - 1):
        chosen.append(int(closest.argmax()))
        closest = np.minimum(closest, squared_distances(points, points[chosen[-1:]])[:, 0])
    return np.array(chosen, dtype=np.int64)


def start_partition(places: Floats, anchors: Floats, seed: int) -> Partition:
    """
    Partition the sample from the anchors, and from one spread of random rows; the better one wins.

    Parameters
    ----------
    places : ndarray of float64, shape (n, d)
        Signatures of the sample.
    anchors : ndarray of float64, shape (k, d)
        The anchors' signatures.
    seed : int
        Root seed.

    Returns
    -------
    Partition
        After breathing.
    """
    found = _partition(places.astype(np.float32), anchors.astype(np.float32), seed)
    if found.inertia < _COARSE * float((places**2).sum()):
        return _partition(places, anchors, seed)
    return found


def _partition(places: Floats, anchors: Floats, seed: int) -> Partition:
    rng = np.random.default_rng(seed)
    starts = [anchors, spread_centres(places, len(anchors), rng)]
    found = [breathe(places, lloyd(places, start), rng) for start in starts]
    return min(found, key=lambda partition: partition.inertia)


def choose_count(
    rows: Floats,
    places: Floats,
    candidates: Floats,
    most: int,
    settings: MixtureSettings,
    variances: Floats,
) -> tuple[int, Floats]:
    """
    Choose the number of components by BIC, over one anchored fit for each number.

    Parameters
    ----------
    rows, places : ndarray of float64, shapes (n, p) and (n, d)
        Rows of the sample, less the centre, and their signatures.
    candidates : ndarray of float64, shape (c, d)
        Means of tails.
    most : int
        Greatest number considered.
    settings : MixtureSettings
        Parameters.
    variances : ndarray of float64, shape (p,)
        Variances of the features.

    Returns
    -------
    count : int
        The number with the least BIC.
    scores : ndarray of float64, shape (m, 2)
        Numbers tried and their BIC; the search ends when some more components in turn have not helped.
    """
    (n, p), form = rows.shape, settings.covariance_type
    scores: list[float] = []
    for k in range(1, most + 1):
        partition = start_partition(places, choose_anchors(candidates, k), settings.anchoring.seed)
        within = within_variances(rows, partition.labels, k)
        regular = regularization(variances, settings.reg_covar, within)
        mixture = mixture_of_labels(rows, partition.labels, k, form, regular)
        log_likelihood = improve(rows, mixture, regular, _COUNT_PASSES)[1]
        parameters = k * p + k - 1 + covariance_parameters(form, k, p)
        scores.append(parameters * math.log(n) - 2.0 * n * log_likelihood)
        if len(scores) - 1 - int(np.argmin(scores)) >= _PATIENCE:
            break
    return 1 + int(np.argmin(scores)), np.column_stack([np.arange(1, len(scores) + 1), scores])

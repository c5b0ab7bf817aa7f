"""Where a hidden Markov model starts: tails of directions are candidates, anchors among them, a fit in coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.engine.emissions import Emission
from dask_dca.engine.lagged import tails_in_context
from dask_dca.engine.markov_passes import expectation_pass
from dask_dca.engine.origins import Origins
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sequences import cut_sequences
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.kernels.chains import Markov, smoothed_chain
from dask_dca.kernels.gaussian import log_densities, prepare_gaussians
from dask_dca.kernels.labels import label_counts
from dask_dca.kernels.lloyd import lloyd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.lagged import Tails
    from dask_dca.engine.sequences import Cut

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]
    Numbers = NDArray[np.int64]

__all__ = ["Start", "fit_coordinates", "short_cut", "signed_directions", "tail_thresholds", "tails"]

_SETTLE: Final = 3  # passes of Baum-Welch in the coordinates
_SWEEPS: Final = 2  # of Lloyd's algorithm before them
_FLOOR: Final = 1e-3  # variance in the coordinates, along which frames have about unit variance
_SEEN: Final = 1e-3  # frames below which a state keeps the mean it had
_BURN_IN: Final = 16
_PIECE: Final = (16, 64)  # least and greatest length of the pieces of a fit


@dataclass(frozen=True)
class Start:
    """A model of coordinates: means (k, d), one covariance (d, d), the Markov chain, and its likelihood."""

    means: Floats
    covariance: Floats
    markov: Markov
    log_likelihood: float

    def emission(self, centre: Floats | None = None, coordinates: Floats | None = None) -> Emission:
        """
        Prepare the densities.

        Parameters
        ----------
        centre, coordinates : ndarray of float64, shapes (p,) and (p, d), optional
            A frame x has the coordinates (x - centre) @ coordinates; without them coordinates are what is evaluated.

        Returns
        -------
        Emission
            Densities of frames, or of coordinates.
        """
        return Emission(prepare_gaussians(self.means, self.covariance, "tied"), centre, coordinates)

    def labels(self, coordinates: Floats) -> Labels:
        """
        Find the most likely state of each frame by itself.

        Parameters
        ----------
        coordinates : ndarray of float64, shape (n, d)
            Coordinates of frames.

        Returns
        -------
        ndarray of intp, shape (n,)
            The states.
        """
        found: Labels = log_densities(self.emission().gaussians, coordinates).argmax(axis=1)
        return found


def short_cut(edges: Numbers, width: int) -> Cut:
    """
    Cut sequences as a fit does: pieces short enough that few frames make many of them.

    Parameters
    ----------
    edges : ndarray of int64, shape (m + 1,)
        Ends of sequences.
    width : int
        Numbers a frame that are held at once.

    Returns
    -------
    Cut
        Pieces of 16 to 64 frames, with a burn-in of 16.
    """
    length = int(np.clip(int(edges[-1]) // _PIECE[1], *_PIECE))
    return cut_sequences(edges, length=length, burn_in=_BURN_IN, width=width)


def tail_share(k: int, n: int) -> float:
    """
    Decide how many frames make a tail.

    Parameters
    ----------
    k, n : int
        Number of states, and of frames.

    Returns
    -------
    float
        Share of the frames: 4 %, but 30 frames at least, and at most half of a state's.

    Examples
    --------
    >>> tail_share(5, 10_000), tail_share(50, 10_000)
    (0.04, 0.01)
    """
    most = 0.5 / k
    return max(min(most, 0.04), min(most, 30 / n))


def signed_directions(k: int, d: int, count: int | None, seed: int) -> Floats:
    """
    Draw directions, each both ways: the sub-problems.

    Parameters
    ----------
    k, d : int
        Number of states, and of coordinates.
    count : int or None
        How many; 6 k ln(k + 1) if None. There is but one along a line.
    seed : int
        Their seed.

    Returns
    -------
    ndarray of float64, shape (2 s, d)
        Unit vectors, then their opposites.

    Examples
    --------
    >>> signed_directions(3, 2, 5, 0).shape
    (10, 2)
    """
    if d == 1:
        return np.array([[1.0], [-1.0]])
    s = count or int(np.ceil(6 * k * np.log(k + 1)))
    drawn = ndtri(uniforms(child_seeds(seed, np.arange(s)), d))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.concatenate([drawn, -drawn])


def tail_thresholds(coordinates: Floats, directions: Floats, k: int) -> Floats:
    """
    Return the heights from which on a frame is in the tail of each direction.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, d)
        Coordinates of frames.
    directions : ndarray of float64, shape (2 s, d)
        Signed directions.
    k : int
        Number of states: it decides how many frames make a tail.

    Returns
    -------
    ndarray of float64, shape (2 s,)
        The heights.
    """
    n = len(coordinates)
    rank = n - int(np.clip(round(tail_share(k, n) * n), 1, n))
    heights: Floats = np.partition(directions @ coordinates.T, rank, axis=1)[:, rank]
    return heights


def tails(coordinates: Floats, edges: Numbers, directions: Floats, k: int) -> Tails:
    """
    Average the frames furthest out along directions, and their neighbours, for coordinates in memory.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, d)
        Coordinates of frames.
    edges : ndarray of int64, shape (m + 1,)
        Ends of sequences.
    directions : ndarray of float64, shape (2 s, d)
        Signed directions.
    k : int
        Number of states.

    Returns
    -------
    Tails
        Means over the tails.
    """
    d = coordinates.shape[1]
    thresholds = tail_thresholds(coordinates, directions, k)
    return tails_in_context(as_rows(coordinates), edges, np.zeros(d), np.eye(d), directions, thresholds, Run())


def fit_coordinates(coordinates: Floats, edges: Numbers, centres: Floats) -> Start:
    """
    Fit means, one shared covariance and the Markov chain to coordinates of frames.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, d)
        Coordinates of frames, in memory.
    edges : ndarray of int64, shape (m + 1,)
        Ends of sequences.
    centres : ndarray of float64, shape (k, d)
        Where the states' means are expected.

    Returns
    -------
    Start
        The model after two sweeps of Lloyd's algorithm and three passes of Baum-Welch; its likelihood is that before
        the last M-step.
    """
    k, d = centres.shape
    start = _of_labels(coordinates, edges, lloyd(coordinates, centres, _SWEEPS).labels, k)
    rows, cut, unit = as_rows(coordinates), short_cut(edges, k + d), Origins(np.zeros(d), np.ones(d))
    whole = coordinates.T @ coordinates
    for _ in range(_SETTLE):
        found = expectation_pass(rows, cut, start.emission(), start.markov, unit, "none", Run())
        means = found.first / np.maximum(found.counts, _SEEN)[:, None]
        means = np.where(found.counts[:, None] > _SEEN, means, start.means)
        covariance = _floored((whole - (means.T * found.counts) @ means) / len(coordinates))
        start = Start(means, covariance, smoothed_chain(found.starts, found.transitions), found.log_likelihood)
    return start


def _of_labels(coordinates: Floats, edges: Numbers, labels: Labels, k: int) -> Start:
    hot = np.eye(k)[labels]
    counts = hot.sum(axis=0)
    means = (hot.T @ coordinates) / np.maximum(counts, 1.0)[:, None]
    residual = coordinates - means[labels]
    chain = smoothed_chain(*label_counts(labels, edges, k))
    return Start(means, _floored(residual.T @ residual / len(labels)), chain, -np.inf)


def _floored(covariance: Floats) -> Floats:
    """A covariance without directions of no variance."""
    variances, axes = np.linalg.eigh((covariance + covariance.T) / 2)
    floored: Floats = (axes * np.maximum(variances, _FLOOR)) @ axes.T
    return floored

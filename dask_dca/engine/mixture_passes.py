"""The pass of expectation-maximisation: a block of rows -> exact sufficient statistics, merged in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import require_squares
from dask_dca.engine.merges import add_parts
from dask_dca.engine.mixture_moments import Scales, component_totals, joined_moments, scales_of
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import even_tiles, tile_height
from dask_dca.geometry.arg_best import ArgBest
from dask_dca.geometry.exact import Total, plain_total
from dask_dca.kernels.gaussian import Gaussians, log_densities
from dask_dca.kernels.mixture_em import normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.kernels.gaussian_moments import GaussianMoments

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Densities", "Seen", "joint_blocks", "log_likelihood", "mixture_pass"]

_NATS: Final = 2.0**-20


@dataclass(frozen=True)
class Densities:
    """
    A mixture, ready for blocks of rows.

    Attributes
    ----------
    gaussians : Gaussians
        Components.
    log_weights : ndarray of float64, shape (k,)
        Logarithms of their shares.
    height : int
        Rows of a tile.
    """

    gaussians: Gaussians
    log_weights: Floats
    height: int


@dataclass(frozen=True)
class Seen:
    """
    What a pass saw.

    Attributes
    ----------
    moments : GaussianMoments
        Weighted sums over the rows, less the centre; those of far components are about their means.
    log_likelihood : float
        Sum of the rows' log densities.
    nearest : ndarray of int64, shape (k,)
        For each component the row of greatest density under it, the first one among equals.
    """

    moments: GaussianMoments
    log_likelihood: float
    nearest: Numbers


@dataclass(frozen=True)
class _State:
    densities: Densities
    scales: Scales


@dataclass(frozen=True)
class _Sums:
    totals: list[Total]  # moments, log likelihood
    nearest: ArgBest  # (k,), by density

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(add_parts([self.totals, other.totals]), self.nearest + other.nearest)


def mixture_pass(rows: Rows, gaussians: Gaussians, weights: Floats, deviations: Floats, run: Run) -> Seen:
    """
    Sum what a step of expectation-maximisation needs over all rows.

    Parameters
    ----------
    rows : Rows
        The data.
    gaussians : Gaussians
        Components.
    weights : ndarray of float64, shape (k,)
        Their shares.
    deviations : ndarray of float64, shape (p,)
        Standard deviations of the features: sums are exact to 2**-30 of them.
    run : Run
        How passes are run.

    Returns
    -------
    Seen
        The same bits for any chunking, merge order or number of workers.
    """
    densities = Densities(gaussians, np.log(weights), tile_height(rows.n_rows, rows.n_features))
    job = Pass("refine", _refine_block, add_parts)
    scales = scales_of(gaussians, deviations)
    sums = run_pass(rows, job, _State(densities, scales), run)
    *totals, log_likelihood = (total.value() for total in sums.totals)
    return Seen(joined_moments(gaussians, scales, totals), float(log_likelihood), sums.nearest.rows)


def joint_blocks(densities: Densities, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Floats, Floats]]:
    """
    Evaluate a mixture on a block of rows, tile by tile.

    Parameters
    ----------
    densities : Densities
        The mixture.
    start : int
        Row number of the block's first row.
    columns : sequence
        The block's column chunks.

    Yields
    ------
    numbers : ndarray of int64, shape (n,)
        Row numbers.
    centred : ndarray of float64, shape (n, p)
        The rows less the centre.
    joint : ndarray of float64, shape (h, k)
        Logarithms of weight times density; its rows beyond n are no rows of the data.
    """
    for numbers, tile in even_tiles(columns, start, densities.height):
        require_squares(tile, numbers)
        joint = log_densities(densities.gaussians, tile)
        joint += densities.log_weights
        yield numbers, tile[: len(numbers)] - densities.gaussians.centre, joint


def _refine_block(state: _State, start: int, *columns: Any) -> _Sums:
    k, p = state.densities.gaussians.means.shape
    found = [_sums(state, np.zeros(0, dtype=np.int64), np.zeros((0, p)), np.zeros((0, k)))]
    for numbers, centred, joint in joint_blocks(state.densities, start, columns):
        found.append(_sums(state, numbers, centred, joint))
    return add_parts(found)


def _sums(state: _State, numbers: Numbers, centred: Floats, joint: Floats) -> _Sums:
    n, k = len(numbers), joint.shape[1]
    shares, log_likelihoods = (part[:n] for part in normalise(joint)) if n else (joint, joint[:, 0])
    moments = component_totals(state.densities.gaussians, state.scales, shares, centred)
    totals = [*moments, plain_total(log_likelihoods, _NATS)]
    if not n:
        return _Sums(totals, ArgBest.nobody(k))
    return _Sums(totals, ArgBest.of_rows(joint[:n] - state.densities.log_weights, numbers))


def log_likelihood(rows: Rows, densities: Densities, run: Run) -> float:
    """
    Sum the log densities of all rows.

    Parameters
    ----------
    rows : Rows
        The data.
    densities : Densities
        The mixture.
    run : Run
        How passes are run.

    Returns
    -------
    float
        The sum, the same for any chunking.
    """
    job = Pass("score", _score_block, add_parts)
    return float(run_pass(rows, job, densities, run).value())


def _score_block(densities: Densities, start: int, *columns: Any) -> Total:
    found = [plain_total(np.zeros(0), _NATS)]
    for numbers, _, joint in joint_blocks(densities, start, columns):
        found.append(plain_total(normalise(joint)[1][: len(numbers)], _NATS))
    return add_parts(found)


def label_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """
    Find the most probable component of each row of a block.

    Parameters
    ----------
    densities : Densities
        The mixture.
    start : int
        Row number of the block's first row.
    *columns : array-like
        The block's column chunks.

    Returns
    -------
    ndarray of float64, shape (n, 1)
        Component numbers.
    """
    found = [joint[: len(numbers)].argmax(axis=1) for numbers, _, joint in joint_blocks(densities, start, columns)]
    return np.concatenate([np.zeros(0), *found])[:, None]


def posterior_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """
    Find the probability of each component for each row of a block.

    Parameters
    ----------
    densities, start, *columns : Densities, int and array-like
        As `label_block` takes them.

    Returns
    -------
    ndarray of float64, shape (n, k)
        The probabilities.
    """
    found = [normalise(joint)[0][: len(numbers)] for numbers, _, joint in joint_blocks(densities, start, columns)]
    return np.concatenate([np.zeros((0, len(densities.log_weights))), *found])


def density_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """
    Evaluate the log density of each row of a block.

    Parameters
    ----------
    densities, start, *columns : Densities, int and array-like
        As `label_block` takes them.

    Returns
    -------
    ndarray of float64, shape (n, 1)
        The log densities.
    """
    found = [normalise(joint)[1][: len(numbers)] for numbers, _, joint in joint_blocks(densities, start, columns)]
    return np.concatenate([np.zeros(0), *found])[:, None]

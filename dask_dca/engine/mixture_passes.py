"""The pass of expectation-maximisation: a block of rows -> exact sufficient statistics, merged in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import require_finite
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import even_tiles, tile_height
from dask_dca.geometry.exact import Total, plain_total, power_of_two, product_total, weighted_total
from dask_dca.kernels.gaussian import Gaussians, log_densities
from dask_dca.kernels.gaussian_moments import GaussianMoments, about_origins
from dask_dca.kernels.mixture_em import normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Densities", "Seen", "joint_blocks", "log_likelihood", "mixture_pass"]

_VALUE: Final = 2.0**-30  # standard deviations
_SQUARE: Final = 2.0**-32  # variances: squares up to 128 of them take two digits
_NATS: Final = 2.0**-20
_TOTALS: Final = {"full": 2, "tied": 2}  # sums about an origin: of outer products too
_LEAST_SHARE: Final = 2.0**-25  # rounded, a smaller share is none
_LEAST_DEVIATION: Final = 2.0**-40  # of a feature's own: units of sums about an origin are not finer


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
    deviations: Floats  # (p,), of the features
    own_deviations: dict[int, Floats]  # (p,), of the features in each far component


@dataclass(frozen=True)
class _Sums:
    totals: list[Total]  # moments, log likelihood
    heights: Floats  # (k,)
    nearest: Numbers  # (k,)


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
    job = Pass("refine", _refine_block, _merge_sums)
    own = gaussians.deviations if gaussians.far.any() else np.zeros(0)
    least = _LEAST_DEVIATION * deviations
    state = _State(densities, deviations, {j: np.maximum(own[j], least) for j in _far(gaussians)})
    sums = run_pass(rows, job, state, run)
    *totals, log_likelihood = (total.value() for total in sums.totals)
    return Seen(_joined(gaussians, totals), float(log_likelihood), sums.nearest)


def _far(gaussians: Gaussians) -> list[int]:
    return np.flatnonzero(gaussians.far).tolist()


def _joined(gaussians: Gaussians, totals: Sequence[Floats]) -> GaussianMoments:
    """Moments of all components: sums about the centre come first, then those of each far component."""
    form, width = gaussians.covariance_type, _TOTALS.get(gaussians.covariance_type, 1)
    near, *rest = (_as_moments(form, totals[i : i + width]) for i in range(0, len(totals), width))
    return about_origins(near, dict(zip(_far(gaussians), rest, strict=True)), gaussians.origins, form)


def _as_moments(form: str, totals: Sequence[Floats]) -> GaussianMoments:
    linear, *products = totals
    p = linear.shape[1] - 1 if products else (linear.shape[1] - 1) // 2 if form == "diag" else linear.shape[1] - 2
    counts, first, second = np.split(linear, [1, 1 + p], axis=1)
    if form != "diag":
        second = products[0] if products else second[:, 0]
    return GaussianMoments(counts[:, 0], first, second)


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
        require_finite(tile, numbers)
        joint = log_densities(densities.gaussians, tile)
        joint += densities.log_weights
        yield numbers, tile[: len(numbers)] - densities.gaussians.centre, joint


def _refine_block(state: _State, start: int, *columns: Any) -> _Sums:
    k, p = state.densities.gaussians.means.shape
    found = [_sums(state, np.zeros(0, dtype=np.int64), np.zeros((0, p)), np.zeros((0, k)))]
    for numbers, centred, joint in joint_blocks(state.densities, start, columns):
        found.append(_sums(state, numbers, centred, joint))
    return _merge_sums(found)


def _sums(state: _State, numbers: Numbers, centred: Floats, joint: Floats) -> _Sums:
    n, k = len(numbers), joint.shape[1]
    shares, log_likelihoods = (part[:n] for part in normalise(joint)) if n else (joint, joint[:, 0])
    totals = [*_moments(state, shares, centred), plain_total(log_likelihoods, _NATS)]
    if not n:
        return _Sums(totals, np.full(k, -np.inf), np.full(k, -1, dtype=np.int64))
    densities = joint[:n] - state.densities.log_weights
    best = densities.argmax(axis=0)
    return _Sums(totals, densities[best, np.arange(k)], numbers[best])


def _moments(state: _State, shares: Floats, centred: Floats) -> Iterator[Total]:
    """Moments about the centre, then those of each far component about its own mean."""
    gaussians = state.densities.gaussians
    form, far = gaussians.covariance_type, gaussians.far
    near, every = (np.where(far, 0.0, shares), False) if far.any() else (shares, True)
    yield from _about(form, near, centred, state.deviations, every=every)
    for j, deviations in state.own_deviations.items():
        own = shares[:, j] > _LEAST_SHARE  # far rows would cost many digits
        yield from _about(form, shares[own, j : j + 1], centred[own] - gaussians.means[j], deviations, every=False)


def _about(form: str, shares: Floats, centred: Floats, deviations: Floats, *, every: bool) -> Iterator[Total]:
    """Counts, weighted sums and sums of squares beside each other; sums of outer products where a form has them."""
    ones, scale = np.ones((len(centred), 1)), power_of_two(deviations)
    columns, units = [ones, centred], [np.ones(1), _VALUE * scale]
    if form == "diag":
        columns.append(centred**2)
        units.append(_SQUARE * scale**2)
    elif form in ("spherical", "tied-spherical"):
        columns.append((centred**2).sum(axis=1, keepdims=True))
        units.append(np.atleast_1d(_SQUARE * power_of_two((deviations**2).sum())))
    yield weighted_total(shares, np.hstack(columns), np.concatenate(units))
    if form in ("full", "tied"):
        yield _products(form, shares, centred, _VALUE * scale, every=every)


def _products(form: str, shares: Floats, centred: Floats, unit: Floats, *, every: bool) -> Total:
    """Sums of outer products: for each component, or together; `every` says that shares sum to one."""
    if form == "tied":
        rows = centred if every else centred * np.sqrt(shares.sum(axis=1))[:, None]
        return product_total(rows, rows, unit, unit)
    weighted = (centred * root[:, None] for root in np.sqrt(shares).T)
    return _stacked([product_total(part, part, unit, unit) for part in weighted])


def _stacked(totals: list[Total]) -> Total:
    levels = max(len(total.parts) for total in totals)
    parts = np.zeros((levels, len(totals), *totals[0].parts.shape[1:]))
    for j, total in enumerate(totals):
        parts[: len(total.parts), j] = total.parts
    return Total(parts, totals[0].unit)


def _merge_sums(parts: Sequence[_Sums]) -> _Sums:
    merged = parts[0]
    for part in parts[1:]:
        tie = (part.heights == merged.heights) & (part.nearest < merged.nearest)
        better = (part.nearest >= 0) & ((merged.nearest < 0) | (part.heights > merged.heights) | tie)
        merged = _Sums(
            [one + other for one, other in zip(merged.totals, part.totals, strict=True)],
            np.where(better, part.heights, merged.heights),
            np.where(better, part.nearest, merged.nearest),
        )
    return merged


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

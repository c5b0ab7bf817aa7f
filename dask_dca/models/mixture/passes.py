"""What runs on blocks of rows for a mixture: the rows furthest out, exact sums of the E-step, densities and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import require_squares
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import even_tiles, tile_height
from dask_dca.engine.types import add_parts
from dask_dca.geometry.arg_best import ArgBest
from dask_dca.geometry.exact import Total, plain_total, power_of_two, product_total, weighted_total
from dask_dca.models.gaussians import GaussianMoments, Gaussians, about_origins, log_densities
from dask_dca.models.mixture.em import normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.mixture.subspace import Subspace

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "Densities",
    "MixtureStatistics",
    "Scales",
    "component_totals",
    "e_step_pass",
    "furthest_rows",
    "joined_moments",
    "joint_blocks",
    "log_likelihood",
    "scales_of",
]

_VALUE: Final = 2.0**-30  # standard deviations
_SQUARE: Final = 2.0**-32  # variances: squares up to 128 of them take two digits
_TOTALS: Final = {"full": 2, "tied": 2}  # sums about an origin: of outer products too
_LEAST_SHARE: Final = 2.0**-25  # rounded, a smaller share is none
_LEAST_DEVIATION: Final = 2.0**-40  # of a feature's own: units of sums about an origin are not finer
_NATS: Final = 2.0**-20


@dataclass(frozen=True)
class Scales:
    """Standard deviations that sums are rounded by.

    features (p,): of the features, none of them zero; far (p,): of the features in each component that is far from the
    centre.
    """

    features: Floats
    far: dict[int, Floats]


def scales_of(gaussians: Gaussians, deviations: Floats) -> Scales:
    """Find what sums over rows are rounded by.

    deviations (p,): standard deviations of the features. Returns of the features, and within far components.
    """
    far = np.flatnonzero(gaussians.far).tolist()
    own = gaussians.deviations if far else deviations[None]
    return Scales(deviations, {j: np.maximum(own[j], _LEAST_DEVIATION * deviations) for j in far})


def joined_moments(gaussians: Gaussians, scales: Scales, totals: Sequence[Floats]) -> GaussianMoments:
    """Put the sums of `component_totals` over all rows together."""
    form, width = gaussians.covariance_type, _TOTALS.get(gaussians.covariance_type, 1)
    near, *rest = (_as_moments(form, totals[i : i + width]) for i in range(0, len(totals), width))
    return about_origins(near, dict(zip(scales.far, rest, strict=True)), gaussians.origins, form)


def _as_moments(form: str, totals: Sequence[Floats]) -> GaussianMoments:
    linear, *products = totals
    p = linear.shape[1] - 1 if products else (linear.shape[1] - 1) // 2 if form == "diag" else linear.shape[1] - 2
    counts, first, second = np.split(linear, [1, 1 + p], axis=1)
    if form != "diag":
        second = products[0] if products else second[:, 0]
    return GaussianMoments(counts[:, 0], first, second)


def component_totals(
    gaussians: Gaussians, scales: Scales, shares: Floats, centred: Floats, *, every: bool = True
) -> Iterator[Total]:
    """Sum moments about the centre, then those of each far component about its own mean.

    gaussians, scales: components, and what sums are rounded by; shares (n, k): how much of each row belongs to each
    component; centred (n, p): the rows less the centre; every: whether the shares of each row sum to one. Returns one
    or two for the centre and for each far component.
    """
    form, far = gaussians.covariance_type, gaussians.far
    near, every = (np.where(far, 0.0, shares), False) if far.any() else (shares, every)
    yield from _about(form, near, centred, scales.features, every=every)
    for j, deviations in scales.far.items():
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


@dataclass(frozen=True)
class Densities:
    """A mixture, ready for blocks of rows.

    gaussians: of rows, or of their coordinates in a subspace; log_weights (k,): logarithms of their shares.
    """

    gaussians: Gaussians
    log_weights: Floats
    height: int
    subspace: Subspace | None = None


@dataclass(frozen=True)
class MixtureStatistics:
    """What a pass saw.

    moments: weighted sums over the rows, less the centre; those of far components are about their means;
    log_likelihood: mean of the rows' log densities; n_outliers: rows of too low a density to count in either; nearest
    (k,): for each component the row of greatest density under it, the first one among equals.
    """

    moments: GaussianMoments
    log_likelihood: float
    n_outliers: int
    nearest: Numbers


@dataclass(frozen=True)
class _State:
    densities: Densities
    scales: Scales
    least: float
    most: float  # that a row weighs


@dataclass(frozen=True)
class _Sums:
    totals: list[Total]  # moments, log likelihood beside the number of rows that count
    nearest: ArgBest  # (k,), by density

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(add_parts([self.totals, other.totals]), self.nearest + other.nearest)


def e_step_pass(
    rows: Rows, densities: Densities, deviations: Floats, run: Run, least: float = -np.inf
) -> MixtureStatistics:
    """Sum what a step of expectation-maximisation needs over all rows.

    deviations (p,): standard deviations of the features, or coordinates: sums are exact to 2**-30 of them; least: rows
    of a lower log density are noise, and have no weight. Returns the same bits for any chunking, merge order or number
    of workers.
    """
    job = Pass("refine", _refine_block, add_parts, weighted=True)
    most = 1.0 if rows.weights is None else rows.weights.most
    scales = scales_of(densities.gaussians, deviations)
    sums = run_pass(rows, job, _State(densities, scales, least, most), run)
    *totals, (log_likelihood, counted) = (most * total.value() for total in sums.totals)
    moments = joined_moments(densities.gaussians, scales, totals)
    return MixtureStatistics(
        moments,
        float(log_likelihood) / max(float(counted), _NATS),
        round(rows.total_weight - float(counted)),
        sums.nearest.rows,
    )


def joint_blocks(densities: Densities, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Floats, Floats]]:
    """Evaluate a mixture on a block of rows, tile by tile.

    start: row number of the block's first row. Returns numbers (n,): row numbers; centred (n, p): the rows less the
    centre, or their coordinates in the subspace; joint (h, k): logarithms of weight times density; its rows beyond n
    are no rows of the data.
    """
    for numbers, tile in even_tiles(columns, start, densities.height):
        require_squares(tile, numbers)
        places, across = (tile, 0.0) if densities.subspace is None else densities.subspace.split(tile)
        joint = log_densities(densities.gaussians, places)
        joint += densities.log_weights + np.reshape(across, (-1, 1))
        yield numbers, places[: len(numbers)] - densities.gaussians.centre, joint


def _refine_block(state: _State, start: int, *columns: Any, weights: Floats | None = None) -> _Sums:
    k, p = state.densities.gaussians.means.shape
    found = [_sums(state, np.zeros(0, dtype=np.int64), np.zeros((0, p)), np.zeros((0, k)), None)]
    for numbers, centred, joint in joint_blocks(state.densities, start, columns):
        found.append(_sums(state, numbers, centred, joint, None if weights is None else weights[numbers - start]))
    return add_parts(found)


def _sums(state: _State, numbers: Numbers, centred: Floats, joint: Floats, weights: Floats | None) -> _Sums:
    n, k = len(numbers), joint.shape[1]
    shares, log_likelihoods = (part[:n] for part in normalise(joint)) if n else (joint, joint[:, 0])
    counted: Any = log_likelihoods >= state.least
    every = not np.isfinite(state.least) and weights is None
    if weights is not None:
        counted = counted * (weights / state.most)  # at most one, as sums need it
    shares = shares * counted[:, None]
    moments = component_totals(state.densities.gaussians, state.scales, shares, centred, every=every)
    nats = np.stack([np.where(counted > 0, log_likelihoods, 0.0) * counted, counted], axis=1)
    totals = [*moments, plain_total(nats, _NATS)]
    if not n:
        return _Sums(totals, ArgBest.nobody(k))
    logs = joint[:n] - state.densities.log_weights
    if weights is not None:
        logs[weights == 0.0] = -np.inf
    return _Sums(totals, ArgBest.of_rows(logs, numbers))


def log_likelihood(rows: Rows, densities: Densities, run: Run) -> float:
    """Sum the log densities of all rows.

    Returns the sum, the same for any chunking.
    """
    job = Pass("score", _score_block, add_parts)
    return float(run_pass(rows, job, densities, run).value())


def _score_block(densities: Densities, start: int, *columns: Any) -> Total:
    found = [plain_total(np.zeros(0), _NATS)]
    for numbers, _, joint in joint_blocks(densities, start, columns):
        found.append(plain_total(normalise(joint)[1][: len(numbers)], _NATS))
    return add_parts(found)


def label_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Find the most probable component of each row of a block.

    start: row number of the block's first row. Returns (n, 1): component numbers.
    """
    found = [joint[: len(numbers)].argmax(axis=1) for numbers, _, joint in joint_blocks(densities, start, columns)]
    return np.concatenate([np.zeros(0), *found])[:, None]


def posterior_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Find the probability of each component for each row of a block.

    Returns (n, k): the probabilities.
    """
    found = [normalise(joint)[0][: len(numbers)] for numbers, _, joint in joint_blocks(densities, start, columns)]
    return np.concatenate([np.zeros((0, len(densities.log_weights))), *found])


def density_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Evaluate the log density of each row of a block.

    Returns (n, 1): the log densities.
    """
    found = [normalise(joint)[1][: len(numbers)] for numbers, _, joint in joint_blocks(densities, start, columns)]
    return np.concatenate([np.zeros(0), *found])[:, None]


@dataclass(frozen=True)
class _Directions:
    """Directions in coordinates: a row less the centre times `coordinates` has its place."""

    centre: Floats  # (p,)
    coordinates: Floats  # (p, d)
    axes: Floats  # (s, d)
    height: int


def furthest_rows(rows: Rows, centre: Floats, coordinates: Floats, axes: Floats, run: Run) -> ArgBest:
    """Look along directions, both ways, for the row furthest out: the divide pass.

    coordinates (p, d): a row less the centre (p,) times these has its place; axes (s, d): directions. Returns the rows
    (2 s,), along the directions, then against them, with their places (2 s, d).
    """
    height = tile_height(rows.n_rows, rows.n_features)
    return run_pass(
        rows,
        Pass("divide", _furthest_block, add_parts, weighted=True),
        _Directions(centre, coordinates, axes, height),
        run,
    )


def _furthest_block(state: _Directions, start: int, *columns: Any, weights: Floats | None = None) -> ArgBest:
    s, d = state.axes.shape
    found = [ArgBest.nobody(2 * s, d)]
    for numbers, tile in even_tiles(columns, start, state.height):
        require_squares(tile, numbers)
        places = (tile - state.centre) @ state.coordinates
        heights = (state.axes @ places.T)[:, : len(numbers)]
        keys = np.concatenate([heights, -heights]).T
        if weights is not None:
            keys[weights[numbers - start] == 0.0] = -np.inf
        found.append(ArgBest.of_rows(keys, numbers, places[: len(numbers)]))
    return add_parts(found)

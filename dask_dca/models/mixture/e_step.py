"""The E-step on tiles of rows, with exact sums.

Tiles are transposed to (feature, row), so that operations over components run along contiguous rows. Responsibilities
are integers up to 2**16 and values are rounded to a grid, so that products and their sums are integers below 2**52
units: exact, in any order. The sums themselves tell whether this bound held, since the squares among them bound all
other sums (Cauchy-Schwarz inequality). Where it did not, for rows very far out, the tile is summed again in several
digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import (
    EXACT_LIMIT,
    RunningTotal,
    Total,
    plain_total,
    power_of_two,
    product_total,
    weighted_total,
)
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.gaussians import GaussianMoments, Gaussians, log_densities_at, log_peak, rescale_student_moments

_WEIGHT_BITS: Final = 16  # responsibilities are integers from 0 to 2**16
_VALUE_UNIT: Final = 2.0**-22  # values are rounded to multiples of this, relative to the feature's scale
_SQUARE_UNIT: Final = 2.0**-18  # squares of values are rounded to multiples of this, relative to the squared scale
# sums of values are at most this times the root of (number of rows times sum of squares), all in their units
_CAUCHY_FACTOR: Final = _VALUE_UNIT**-1 * (2.0**_WEIGHT_BITS * _SQUARE_UNIT) ** 0.5
_MAX_SCALE_RATIO: Final = 32.0  # maximum scale of rounding, in standard deviations of the narrowest component
_MIN_SCALE_RATIO: Final = 2.0**-28  # minimum scale of rounding, relative to the feature's standard deviation
_SQUARE_ROUNDING: Final = 2.0 ** (_WEIGHT_BITS - 1)  # maximum rounding error of a row's weighted square, in units
_ROUNDING_SHIFT: Final = 1.5 * 2.0**52  # adding and subtracting this many units rounds to multiples of the unit
_MIN_EXPONENT: Final = np.float32(-80.0)  # minimum log responsibility: exp of less would be subnormal, which is slow
LOG_UNIT: Final = 2.0**-20  # log densities are rounded to multiples of this before they are summed
_TILES_PER_SUM: Final = 64  # tiles whose log densities are summed at once
_MAX_TILE_ROWS: Final = 1024  # maximum height of tiles of rows in memory
_MAX_WHITENED_ENTRIES: Final = 2**19  # maximum entries of a tile whitened by every component, to fit the cache


def e_step_tile_height(covariance_type: str, n_components: int, n_features: int, height: int) -> int:
    """Choose the height of tiles such that, with full covariances, the whitened rows of all components fit the cache.

    height: from `tile_height`. Returns a multiple of 64 that depends on the shapes of the data and the model only.
    """
    if covariance_type != "full":
        return height
    return min(height, 64 * max(1, _MAX_WHITENED_ENTRIES // (64 * n_components * (n_features + 1))))


class ComponentSums(Protocol):
    """Log densities of tiles of rows, and exact sums over a block of each component's weighted rows."""

    def joint(self, tile: Floats) -> Floats:
        """Evaluate log weight plus log density (k, h) of a tile's rows (h, p); the caller may overwrite the result."""

    def add(self, weights: Floats) -> bool:
        """Add the rows of the last tile with integer weights (k, h); False, and nothing added, if sums would round."""

    def add_multidigit(self, weights: Floats) -> None:
        """Add the rows of the last tile in several digits, however far out they are."""

    def totals(self) -> list[Total]:
        """Return the sums."""


def component_sums(gaussians: Gaussians, log_weights: Floats, deviations: Floats, height: int) -> ComponentSums:
    """Prepare empty sums for a block.

    gaussians: none of the components far from the centre, unless covariances are full; deviations (p,): standard
    deviations of the features, none of them zero.
    """
    if gaussians.covariance_type == "full":
        return _WhitenedSums(gaussians, log_weights, height)
    return _LinearSums(gaussians, log_weights, rounding_scales(gaussians, deviations), height)


def rounding_scales(gaussians: Gaussians, deviations: Floats) -> Floats:
    """Choose the scales (p,) that sums about the centre are rounded by.

    These are the features' deviations, unless a component is far narrower: its squares would all be rounded to zero.
    """
    if gaussians.covariance_type in ("full", "tied"):  # whose rows are rounded after whitening
        return deviations
    return np.clip(_MAX_SCALE_RATIO * gaussians.deviations.min(axis=0), _MIN_SCALE_RATIO * deviations, deviations)


def integer_responsibilities(joint: Floats) -> tuple[Floats, Floats]:
    """Turn joint log densities into integer responsibilities, by exponentials in single precision.

    joint (k, h): log weight plus log density; overwritten. Returns weights (k, h): responsibilities times 2**16,
    rounded; log_likelihoods (h,): log density of each row, with an error of about 1e-7.
    """
    top = np.maximum.reduce(joint, axis=0)
    shares = np.empty(joint.shape, np.float32)
    np.subtract(joint, top, out=shares, casting="same_kind")
    np.exp(np.maximum(shares, _MIN_EXPONENT, out=shares), out=shares)
    whole = np.add.reduce(shares, axis=0)
    shares *= np.float32(2.0**_WEIGHT_BITS) / whole
    np.rint(shares, out=shares)
    joint[...] = shares
    top += np.log(whole)
    return joint, top


class EStep:
    """An E-step over the rows of a block, tile by tile; rows of log density below `noise_threshold` have no weight."""

    def __init__(self, sums: ComponentSums, gaussians: Gaussians, log_weights: Floats, noise_threshold: float) -> None:
        n_components = len(log_weights)
        self._sums, self._noise_threshold = sums, noise_threshold
        self._tails = HeavyTails(gaussians, log_weights) if math.isfinite(gaussians.degrees) else None
        self._weights: Floats = np.zeros((n_components, 0))
        self._pending_logs: list[Floats] = []
        self.log_likelihood, self.n_counted = plain_total(np.zeros(0), LOG_UNIT), 0
        self.nearest = ArgBest.empty(n_components)

    def add(self, tile: Floats, numbers: Numbers, log_offset: Floats | float = 0.0) -> bool:
        """Add the rows of a tile.

        tile (h, p): the first n rows are those with these numbers, the rest is padding; log_offset: added to their log
        densities. Returns False where rows are not finite, or so far out that their sums need several digits.
        """
        n = len(numbers)
        with np.errstate(all="ignore"):
            joint = self._sums.joint(tile)
            tail_weights = None if self._tails is None else self._tails.weigh(joint)
            self.nearest = _update_nearest(joint[:, :n], numbers, self.nearest)
            weights, logs = integer_responsibilities(joint)
            logs += log_offset
            has_weight = logs >= self._noise_threshold
            has_weight[n:] = False
            weights *= has_weight
            if tail_weights is not None:
                weights *= tail_weights
                np.rint(weights, out=weights)
            self._weights = weights
            self._sum_logs(logs[has_weight])
            return bool(np.isfinite(logs[:n].sum())) and self._sums.add(weights)

    def add_multidigit(self) -> None:
        """Add the rows of the last tile in several digits, however far out they are."""
        self._sums.add_multidigit(self._weights)

    def totals(self) -> list[Total]:
        """Return the sums; `log_likelihood` and `n_counted` are complete from then on."""
        self._sum_logs(np.zeros(0), at=0)
        return self._sums.totals()

    def _sum_logs(self, logs: Floats, at: int = _TILES_PER_SUM) -> None:
        self._pending_logs.append(logs)
        if len(self._pending_logs) >= at:
            found, self._pending_logs = np.concatenate(self._pending_logs), []
            self.log_likelihood += plain_total(found, LOG_UNIT)
            self.n_counted += len(found)


class HeavyTails:
    """Turns normal log densities into those of Student's t distributions with the same means and scale matrices."""

    def __init__(self, gaussians: Gaussians, log_weights: Floats) -> None:
        self._p, self._degrees = gaussians.means.shape[1], gaussians.degrees
        self._heights = (log_weights + gaussians.log_determinants)[:, None]

    def weigh(self, joint: Floats) -> Floats:
        """Convert joint log densities (k, h) in place; return the rows' weights degrees / (degrees + distance**2)."""
        joint -= self._heights + log_peak(self._p, math.inf)
        joint *= -2.0  # squared distances, which rounding may have put below zero
        np.maximum(joint, 0.0, out=joint)
        tail_weights = self._degrees / (self._degrees + joint)
        log_densities_at(joint, self._heights, self._p, self._degrees)
        return tail_weights


def _update_nearest(joint: Floats, numbers: Numbers, known: ArgBest) -> ArgBest:
    """Update each component's row of greatest density (k,) by a tile's; among equals the lower number stays."""
    where = joint.argmax(axis=1)
    heights = joint[np.arange(len(joint)), where]
    if not (heights > known.keys).any():
        return known
    return known + ArgBest(heights, numbers[where], known.values)


def e_step_in_memory(
    gaussians: Gaussians,
    log_weights: Floats,
    deviations: Floats,
    rows: Floats,
    noise_threshold: float,
    log_offsets: Floats,
) -> tuple[GaussianMoments, float]:
    """Run an E-step over rows in memory.

    rows (n, p); log_offsets (n,): added to their log densities; noise_threshold: rows of a lower log density have no
    weight. Returns moments; the mean log density of the rows that have weight.
    """
    (k, p), n = gaussians.means.shape, len(rows)
    height = e_step_tile_height(gaussians.covariance_type, k, p, min(_MAX_TILE_ROWS, 64 * -(-n // 64)))
    step = EStep(component_sums(gaussians, log_weights, deviations, height), gaussians, log_weights, noise_threshold)
    for begin in range(0, n, height):
        numbers = np.arange(begin, min(begin + height, n))
        tile, offset = np.zeros((height, p)), np.zeros(height)
        tile[: len(numbers)] = rows[begin : begin + height]
        offset[: len(numbers)] = log_offsets[begin : begin + height]
        if not step.add(tile, numbers, offset):
            step.add_multidigit()
    values = [total.value() for total in step.totals()]
    moments = rescale_student_moments(moments_of_sums(gaussians, values), gaussians)
    return moments, float(step.log_likelihood.value()) / max(step.n_counted, 1)


class _LinearSums:
    """Sums for the forms whose log densities are linear in a row's values and their squares, or its squared length.

    "tied" rows are whitened first, and have squared lengths from then on. The features (m, h) of a tile are its values,
    squares or squared lengths, and ones: one matrix product gives log densities, another one the sums.
    """

    def __init__(self, gaussians: Gaussians, log_weights: Floats, deviations: Floats, height: int) -> None:
        (k, p), form = gaussians.means.shape, gaussians.covariance_type
        self._p, self._form = p, form
        whitener, means, precisions = _whitening(gaussians)
        scale = _value_scale(form, means, deviations)
        size = 1.0 if form == "diag" else float(power_of_two(p))
        value = _VALUE_UNIT * 2.0 ** np.ceil(np.log2(size) / 2.0)
        self._value_shift, self._square_shift = _ROUNDING_SHIFT * value, _ROUNDING_SHIFT * _SQUARE_UNIT * size
        self._centre = gaussians.centre[:, None].copy()
        self._inverse_scale, self._whitener = (
            (1.0 / scale)[:, None],
            None if whitener is None else whitener / scale[:, None],
        )
        scaled_precisions = precisions * scale[: precisions.shape[1]] ** 2
        self._coefficients = _log_density_coefficients(gaussians, log_weights, means / scale, scaled_precisions)
        squares = scale**2 if form == "diag" else scale[:1] ** 2
        self._units = np.concatenate([np.full(p, value), np.full(len(squares), _SQUARE_UNIT * size), np.ones(1)])
        unscale = np.concatenate([scale, squares, np.ones(1)])
        self._features = np.ones((len(self._units), height))
        self._scratch, self._joint = np.empty((p, height)), np.empty((k, height))
        self._sums = RunningTotal((k, len(self._units)), self._units * unscale * 2.0**-_WEIGHT_BITS)
        self._gram = RunningTotal((p, p), float(scale[0] ** 2) * 4.0**-_WEIGHT_BITS) if form == "tied" else None

    def joint(self, tile: Floats) -> Floats:
        values, squares, scratch = self._features[: self._p], self._features[self._p : -1], self._scratch
        if self._whitener is None:
            np.subtract(tile.T, self._centre, out=values)
            values *= self._inverse_scale
        else:
            np.subtract(tile.T, self._centre, out=scratch)
            np.matmul(self._whitener, scratch, out=values)
        values += self._value_shift
        values -= self._value_shift
        if self._form == "diag":
            np.multiply(values, values, out=squares)
        else:
            np.multiply(values, values, out=scratch)
            np.add.reduce(scratch, axis=0, out=squares[0])
        return np.matmul(self._coefficients, self._features, out=self._joint)

    def add(self, weights: Floats) -> bool:
        squares = self._features[self._p : -1]
        squares += self._square_shift  # rounded for the sums only; densities take them as they are
        squares -= self._square_shift
        sums = weights @ self._features.T
        sums /= self._units
        top, h, bound = float(sums[:, self._p : -1].max()), weights.shape[1], np.inf
        if top < EXACT_LIMIT:
            bound = max(top, _CAUCHY_FACTOR * math.sqrt(h * (top + h * _SQUARE_ROUNDING)))
        if self._gram is None:
            return self._sums.add(sums, bound)
        rows = self._root_weighted(weights)
        gram = rows @ rows.T
        return (
            bound < EXACT_LIMIT and self._gram.add(gram, float(np.diagonal(gram).max())) and self._sums.add(sums, bound)
        )

    def add_multidigit(self, weights: Floats) -> None:
        shares = weights.T * 2.0**-_WEIGHT_BITS
        self._sums.add_total(weighted_total(shares, self._features.T, self._units, _WEIGHT_BITS))
        if self._gram is not None:
            rows = self._root_weighted(weights).T
            self._gram.add_total(product_total(rows, rows, 1.0, 1.0))

    def _root_weighted(self, weights: Floats) -> Floats:
        """Values (p, h) times the root of each row's total weight, rounded: their products are the weighted ones."""
        return np.rint(self._features[: self._p] * (2.0 ** (_WEIGHT_BITS / 2) * np.sqrt(weights.sum(axis=0))))

    def totals(self) -> list[Total]:
        return [part.total() for part in (self._sums, self._gram) if part is not None]


def _whitening(gaussians: Gaussians) -> tuple[Floats | None, Floats, Floats]:
    """Whitening matrix for tied covariances, else None; means (k, p) and precisions (k, p or 1) in its coordinates."""
    k, factors = len(gaussians.means), gaussians.precisions_cholesky
    if gaussians.covariance_type == "tied":
        return np.ascontiguousarray(factors.T), gaussians.means @ factors, np.ones((k, 1))
    if gaussians.covariance_type == "diag":
        return None, gaussians.means, factors**2
    return None, gaussians.means, np.broadcast_to(factors.reshape(-1, 1) ** 2, (k, 1))


def _value_scale(form: str, means: Floats, deviations: Floats) -> Floats:
    """Powers of two (p,) that values are divided by; a single one where squares are summed over features."""
    if form == "diag":
        return power_of_two(deviations)
    p = means.shape[1]
    mean = 1.0 + (means**2).sum(axis=1).max() / p if form == "tied" else (deviations**2).mean()
    return np.full(p, power_of_two(np.sqrt(mean)))


def _log_density_coefficients(gaussians: Gaussians, log_weights: Floats, means: Floats, precisions: Floats) -> Floats:
    """Coefficients (k, m) of a row's values, squares and one in log weight plus log density."""
    constant = log_weights + gaussians.log_determinants - 0.5 * means.shape[1] * np.log(2.0 * np.pi)
    constant = constant - 0.5 * (means**2 * precisions).sum(axis=1)
    return np.hstack([means * precisions, -0.5 * precisions, constant[:, None]])


class _WhitenedSums:
    """Sums for full covariances: for each component the Gram matrix of the rows whitened by it, beside a one."""

    def __init__(self, gaussians: Gaussians, log_weights: Floats, height: int) -> None:
        k, p = gaussians.means.shape
        self._means, self._factors = gaussians.centre + gaussians.means, gaussians.precisions_cholesky
        self._constant = (log_weights + gaussians.log_determinants - 0.5 * p * np.log(2.0 * np.pi))[:, None]
        self._white, self._joint, self._centred = np.empty((k, height, p)), np.empty((k, height)), np.empty((height, p))
        self._sums = RunningTotal((k, p + 1, p + 1), 4.0**-_WEIGHT_BITS)

    def joint(self, tile: Floats) -> Floats:
        for mean, factor, white, logs in zip(self._means, self._factors, self._white, self._joint, strict=True):
            np.subtract(tile, mean, out=self._centred)
            np.matmul(self._centred, factor, out=white)
            np.einsum("ij,ij->i", white, white, out=logs)
        self._joint *= -0.5
        self._joint += self._constant
        return self._joint

    def _root_weighted(self, weights: Floats, j: int) -> Floats:
        """Whitened rows that have weight in a component, beside a one, times the root of the weight, rounded."""
        own = np.flatnonzero(weights[j])
        roots = 2.0 ** (_WEIGHT_BITS / 2) * np.sqrt(weights[j, own])
        found = np.column_stack([self._white[j].take(own, axis=0), np.ones(len(own))])
        found *= roots[:, None]
        return np.rint(found, out=found)

    def add(self, weights: Floats) -> bool:
        rows = (self._root_weighted(weights, j) for j in range(len(weights)))
        found = np.stack([part.T @ part for part in rows])
        return self._sums.add(found, float(np.diagonal(found, axis1=1, axis2=2).max()))

    def add_multidigit(self, weights: Floats) -> None:
        for j in range(len(weights)):
            rows = self._root_weighted(weights, j)
            self._sums.add_total(product_total(rows, rows, 1.0, 1.0), j)

    def totals(self) -> list[Total]:
        return [self._sums.total()]


def moments_of_sums(gaussians: Gaussians, totals: Sequence[Floats]) -> GaussianMoments:
    """Convert sums over all rows, of values that were scaled or whitened, into moments of the rows themselves.

    totals: values of `ComponentSums.totals`. Returns moments about the means for full covariances, else about the
    centre.
    """
    p, form = gaussians.means.shape[1], gaussians.covariance_type
    if form == "full":
        unwhiten = np.linalg.inv(gaussians.precisions_cholesky.transpose(0, 2, 1))
        white = totals[0]
        first = (unwhiten @ white[:, :p, p:])[:, :, 0]
        second = unwhiten @ white[:, :p, :p] @ unwhiten.transpose(0, 2, 1)
        return GaussianMoments(white[:, p, p], first, second, gaussians.means)
    linear = totals[0]
    first, second = linear[:, :p], linear[:, p:-1] if form == "diag" else linear[:, p]
    if form == "tied":
        unwhiten = np.linalg.inv(gaussians.precisions_cholesky)
        first, second = first @ unwhiten, unwhiten.T @ totals[1] @ unwhiten
    return GaussianMoments(linear[:, -1], first, second)

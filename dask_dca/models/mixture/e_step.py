"""The E-step on tiles of rows and its sums, and the divide step that rides along: the rows furthest out.

A tile lies as (feature, row), so that whatever runs over components runs along rows. Responsibilities are integers up
to 2**16; values are rounded to a grid, so that products and their sums are integers below 2**52 units: exact, in any
order. Whether they were is looked up in the sums themselves, since the squares among them bound all others (Cauchy's
inequality); tiles where they were not, for rows very far out, are summed again in several digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from dask_dca.geometry.exact import EXACT_LIMIT, RunningTotal, plain_total, power_of_two, product_total, weighted_total
from dask_dca.geometry.votes import NO_ROW, ArgBest
from dask_dca.models.gaussians import GaussianMoments, balanced, log_densities_at, log_peak

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.exact import Total
    from dask_dca.models.gaussians import Gaussians


_ENDS: Final = (np.float32(-np.inf), np.float32(np.inf))
_ROUNDING: Final = 2.0**-23  # of a sum in single precision: its terms have twice that relative error, with room


@dataclass(frozen=True)
class TailDirections:
    """Directions in coordinates.

    centre (p,), coordinates (p, d): a row less the centre times these has its place; axes (s, d): the directions.
    """

    centre: Floats
    coordinates: Floats
    axes: Floats


class FurthestRows:
    """The rows furthest out among those that were looked at: along the directions, then against them."""

    def __init__(self, directions: TailDirections) -> None:
        self._directions = directions
        (s, d), lengths = directions.axes.shape, np.sqrt((directions.axes**2).sum(axis=1))
        self._single = directions.axes.astype(np.float32)
        self._doubt = (d + 8) * _ROUNDING * lengths
        self._keys, self._rows = np.full((2, s), -np.inf), np.full((2, s), NO_ROW)
        self._values = np.zeros((2, s, d))

    def add(self, tile: Floats, numbers: Numbers, counts: NDArray[np.bool_] | None = None) -> None:
        """Look at rows of higher numbers than before.

        tile (h, p): rows, the first of them those with these numbers; the height is the same for every tile; counts
        (n,): which of them take part, if not all.
        """
        places = ((tile - self._directions.centre) @ self._directions.coordinates)[: len(numbers)]
        reach = float(np.sqrt(np.square(places).sum(axis=1).max()))
        unit = reach if reach > 0.0 else 1.0
        heights = self._single @ np.ascontiguousarray((places / unit).T, dtype=np.float32)
        highest, lowest = (heights, heights) if counts is None else (np.where(counts, heights, end) for end in _ENDS)
        for side, best in enumerate((highest.max(axis=1), -lowest.min(axis=1))):
            known = self._keys[side] / unit
            some = np.flatnonzero(best + self._doubt > known)
            if not len(some):
                continue
            bar = np.maximum(best - 2.0 * self._doubt, known - self._doubt)[some, None]
            near = highest[some] >= bar if side == 0 else lowest[some] <= -bar
            self._compare(side, places, numbers, some, *np.nonzero(near))

    def _compare(
        self,
        side: int,
        places: Floats,
        numbers: Numbers,
        some: NDArray[np.intp],
        which: NDArray[np.intp],
        rows: NDArray[np.intp],
    ) -> None:
        """Compare the exact heights of a few rows with the greatest; they are ordered by direction, then by row."""
        chosen = some[which]
        heights = np.zeros(len(rows))
        for one, other in zip(self._directions.axes.T, places.T, strict=True):  # in the same order for every row
            heights += one[chosen] * other[rows]
        heights *= 1.0 - 2.0 * side
        order = np.lexsort((rows, -heights, chosen))
        first = order[np.unique(chosen[order], return_index=True)[1]]
        better = first[heights[first] > self._keys[side, chosen[first]]]
        where = chosen[better]
        self._keys[side, where], self._rows[side, where] = heights[better], numbers[rows[better]]
        self._values[side, where] = places[rows[better]]

    def total(self) -> ArgBest:
        """Return the rows (2 s,), with their places (2 s, d)."""
        return ArgBest(self._keys.ravel(), self._rows.ravel(), self._values.reshape(-1, self._values.shape[2]))


_WEIGHT_BITS: Final = 16  # of a responsibility
_VALUE: Final = 2.0**-22  # of a value, in units of the scale
_SQUARE: Final = 2.0**-18  # of a square
_CAUCHY: Final = _VALUE**-1 * (2.0**_WEIGHT_BITS * _SQUARE) ** 0.5  # times roots of rows and squares: sums of values
_NARROW: Final = 32.0  # own deviations of the narrowest component: sums are not rounded by more,
_NARROWEST: Final = 2.0**-28  # nor by less of the feature's deviation
_UNSEEN: Final = 2.0 ** (_WEIGHT_BITS - 1)  # of a row's squares, in their units: what rounding may have taken off
_ROUNDER: Final = 1.5 * 2.0**52  # times a unit: adding it and taking it off rounds to multiples of the unit
_NO_SHARE: Final = np.float32(-80.0)  # nats: lower numbers would become subnormal ones, which take long
_NATS: Final = 2.0**-20
_TOGETHER: Final = 64  # tiles whose log densities are summed at once
_HEIGHT: Final = 1024  # of tiles of rows in memory
_HELD: Final = 2**19  # whitened entries of a tile, for all components


def sums_height(covariance_type: str, n_components: int, n_features: int, height: int) -> int:
    """Choose the height of tiles: as for any pass, but whitened rows of all components fit the cache.

    height: from `tile_height`. Returns a multiple of 64, by the shape of the whole matrix and of the model.
    """
    if covariance_type != "full":
        return height
    return min(height, 64 * max(1, _HELD // (64 * n_components * (n_features + 1))))


class ComponentSums(Protocol):
    """What a block's rows add up to, for each component."""

    def joint(self, tile: Floats) -> Floats:
        """Evaluate the logarithms of weight times density (k, h) of a tile's rows (h, p); to be overwritten."""

    def add(self, weights: Floats) -> bool:
        """Add the rows of that tile with integer weights (k, h); false where they are so far out that it needs care."""

    def add_carefully(self, weights: Floats) -> None:
        """Add the same rows, however far out they are."""

    def totals(self) -> list[Total]:
        """Return the sums."""


def component_sums(gaussians: Gaussians, log_weights: Floats, deviations: Floats, height: int) -> ComponentSums:
    """Prepare the sums of a block.

    gaussians: components near the centre, unless they are full; log_weights (k,); deviations (p,): of the features,
    none of them zero.
    """
    if gaussians.covariance_type == "full":
        return _WhitenedSums(gaussians, log_weights, height)
    return _LinearSums(gaussians, log_weights, resolving(gaussians, deviations), height)


def resolving(gaussians: Gaussians, deviations: Floats) -> Floats:
    """Choose deviations (p,) to round sums about the centre by: the features', unless a component is far narrower.

    Squares of its rows would be rounded to none. Sums take more digits then.
    """
    if gaussians.covariance_type in ("full", "tied"):  # rounded by their own
        return deviations
    return np.clip(_NARROW * gaussians.deviations.min(axis=0), _NARROWEST * deviations, deviations)


def responsibilities(joint: Floats) -> tuple[Floats, Floats]:
    """Turn joint log densities into integer weights: exponentials in single precision.

    joint (k, h): joint log densities; overwritten. Returns weights (k, h): responsibilities times 2**16, rounded;
    log_likelihoods (h,): log density of each row, to about 1e-7.
    """
    top = np.maximum.reduce(joint, axis=0)
    shares = np.empty(joint.shape, np.float32)
    np.subtract(joint, top, out=shares, casting="same_kind")
    np.exp(np.maximum(shares, _NO_SHARE, out=shares), out=shares)
    whole = np.add.reduce(shares, axis=0)
    shares *= np.float32(2.0**_WEIGHT_BITS) / whole
    np.rint(shares, out=shares)
    joint[...] = shares
    top += np.log(whole)
    return joint, top


class EStep:
    """An E-step over rows, tile by tile."""

    def __init__(self, sums: ComponentSums, gaussians: Gaussians, log_weights: Floats, least: float) -> None:
        n_components = len(log_weights)
        self._sums, self._least = sums, least
        self._tails = HeavyTails(gaussians, log_weights) if math.isfinite(gaussians.degrees) else None
        self._weights: Floats = np.zeros((n_components, 0))
        self._waiting: list[Floats] = []
        self.nats, self.n_counted, self.nearest = plain_total(np.zeros(0), _NATS), 0, ArgBest.empty(n_components)

    def add(self, tile: Floats, numbers: Numbers, across: Floats | float = 0.0) -> bool:
        """Add rows.

        tile (h, p): rows, the first of them those with these numbers; across: added to their log densities. Returns
        false where rows are not finite, or so far out that it needs care.
        """
        n = len(numbers)
        with np.errstate(all="ignore"):
            joint = self._sums.joint(tile)
            damping = None if self._tails is None else self._tails.weigh(joint)
            self.nearest = _nearer(joint[:, :n], numbers, self.nearest)
            weights, logs = responsibilities(joint)
            logs += across
            has_weight = logs >= self._least
            has_weight[n:] = False
            weights *= has_weight
            if damping is not None:
                weights *= damping
                np.rint(weights, out=weights)
            self._weights = weights
            self._gather(logs[has_weight])
            return bool(np.isfinite(logs[:n].sum())) and self._sums.add(weights)

    def add_carefully(self) -> None:
        """Add the last rows, however far out they are."""
        self._sums.add_carefully(self._weights)

    def totals(self) -> list[Total]:
        """Return the sums of what was added; log densities are then in `nats` and `n_counted`."""
        self._gather(np.zeros(0), at=0)
        return self._sums.totals()

    def _gather(self, logs: Floats, at: int = _TOGETHER) -> None:
        self._waiting.append(logs)
        if len(self._waiting) >= at:
            found, self._waiting = np.concatenate(self._waiting), []
            self.nats, self.n_counted = self.nats + plain_total(found, _NATS), self.n_counted + len(found)


class HeavyTails:
    """Student's t distributions in the place of normal ones with the same means and covariances."""

    def __init__(self, gaussians: Gaussians, log_weights: Floats) -> None:
        self._p, self._degrees = gaussians.means.shape[1], gaussians.degrees
        self._heights = (log_weights + gaussians.log_determinants)[:, None]

    def weigh(self, joint: Floats) -> Floats:
        """Turn joint log densities (k, h) into those of heavy tails, in place; return what rows count for."""
        joint -= self._heights + log_peak(self._p, math.inf)
        joint *= -2.0  # squared distances, which rounding may have put below zero
        np.maximum(joint, 0.0, out=joint)
        damping = self._degrees / (self._degrees + joint)
        log_densities_at(joint, self._heights, self._p, self._degrees)
        return damping


def _nearer(joint: Floats, numbers: Numbers, known: ArgBest) -> ArgBest:
    """The rows of greatest density, among these and those of lower numbers that are known."""
    where = joint.argmax(axis=1)
    heights = joint[np.arange(len(joint)), where]
    if not (heights > known.keys).any():
        return known
    return known + ArgBest(heights, numbers[where], known.values)


def look_at_rows(
    gaussians: Gaussians, log_weights: Floats, deviations: Floats, rows: Floats, least: float, across: Floats
) -> tuple[GaussianMoments, float]:
    """Run an E-step over rows in memory, none of them very far out.

    rows (n, p); across (n,): added to their log densities; least: those of a lower one have no weight. Returns moments;
    the mean log density of those that have.
    """
    (k, p), n = gaussians.means.shape, len(rows)
    height = sums_height(gaussians.covariance_type, k, p, min(_HEIGHT, 64 * -(-n // 64)))
    step = EStep(component_sums(gaussians, log_weights, deviations, height), gaussians, log_weights, least)
    for begin in range(0, n, height):
        numbers = np.arange(begin, min(begin + height, n))
        tile, more = np.zeros((height, p)), np.zeros(height)
        tile[: len(numbers)], more[: len(numbers)] = rows[numbers[0] : begin + height], across[begin : begin + height]
        if not step.add(tile, numbers, more):
            step.add_carefully()
    values = [total.value() for total in step.totals()]
    moments = balanced(moments_of_sums(gaussians, values), gaussians)
    return moments, float(step.nats.value()) / max(step.n_counted, 1)


class _LinearSums:
    """Forms whose log densities are linear in a row's values and squares, or its squared length."""

    def __init__(self, gaussians: Gaussians, log_weights: Floats, deviations: Floats, height: int) -> None:
        (k, p), form = gaussians.means.shape, gaussians.covariance_type
        self._p, self._form = p, form
        turn, means, precisions = _coordinates(gaussians)
        scale = _scale(form, means, deviations)
        size = 1.0 if form == "diag" else float(power_of_two(p))
        value = _VALUE * 2.0 ** np.ceil(np.log2(size) / 2.0)
        self._value, self._square = _ROUNDER * value, _ROUNDER * _SQUARE * size
        self._centre = gaussians.centre[:, None].copy()
        self._shrink, self._turn = (1.0 / scale)[:, None], None if turn is None else turn / scale[:, None]
        self._table = _table(gaussians, log_weights, means / scale, precisions * scale[: precisions.shape[1]] ** 2)
        seconds = scale**2 if form == "diag" else scale[:1] ** 2
        self._units = np.concatenate([np.full(p, value), np.full(len(seconds), _SQUARE * size), np.ones(1)])
        back = np.concatenate([scale, seconds, np.ones(1)])
        self._features = np.ones((len(self._units), height))
        self._spare, self._joint = np.empty((p, height)), np.empty((k, height))
        self._sums = RunningTotal((k, len(self._units)), self._units * back * 2.0**-_WEIGHT_BITS)
        self._together = RunningTotal((p, p), float(scale[0] ** 2) * 4.0**-_WEIGHT_BITS) if form == "tied" else None

    def joint(self, tile: Floats) -> Floats:
        values, seconds, spare = self._features[: self._p], self._features[self._p : -1], self._spare
        if self._turn is None:
            np.subtract(tile.T, self._centre, out=values)
            values *= self._shrink
        else:
            np.subtract(tile.T, self._centre, out=spare)
            np.matmul(self._turn, spare, out=values)
        values += self._value
        values -= self._value
        if self._form == "diag":
            np.multiply(values, values, out=seconds)
        else:
            np.multiply(values, values, out=spare)
            np.add.reduce(spare, axis=0, out=seconds[0])
        return np.matmul(self._table, self._features, out=self._joint)

    def add(self, weights: Floats) -> bool:
        seconds = self._features[self._p : -1]
        seconds += self._square  # which the densities need not
        seconds -= self._square
        sums = weights @ self._features.T
        sums /= self._units
        squares, h = float(sums[:, self._p : -1].max()), weights.shape[1]
        most = max(squares, _CAUCHY * math.sqrt(h * (squares + h * _UNSEEN))) if squares < EXACT_LIMIT else np.inf
        if self._together is None:
            return self._sums.add(sums, most)
        rows = self._rooted(weights)
        gram = rows @ rows.T
        return (
            most < EXACT_LIMIT
            and self._together.add(gram, float(np.diagonal(gram).max()))
            and self._sums.add(sums, most)
        )

    def add_carefully(self, weights: Floats) -> None:
        shares = weights.T * 2.0**-_WEIGHT_BITS
        self._sums.add_total(weighted_total(shares, self._features.T, self._units, _WEIGHT_BITS))
        if self._together is not None:
            rows = self._rooted(weights).T
            self._together.add_total(product_total(rows, rows, 1.0, 1.0))

    def _rooted(self, weights: Floats) -> Floats:
        return np.rint(self._features[: self._p] * (2.0 ** (_WEIGHT_BITS / 2) * np.sqrt(weights.sum(axis=0))))

    def totals(self) -> list[Total]:
        return [part.total() for part in (self._sums, self._together) if part is not None]


def _coordinates(gaussians: Gaussians) -> tuple[Floats | None, Floats, Floats]:
    """What rows are multiplied by so that no covariances are left; means (k, p) and precisions (k, p or 1) there."""
    k, factors = len(gaussians.means), gaussians.precisions_cholesky
    if gaussians.covariance_type == "tied":
        return np.ascontiguousarray(factors.T), gaussians.means @ factors, np.ones((k, 1))
    if gaussians.covariance_type == "diag":
        return None, gaussians.means, factors**2
    return None, gaussians.means, np.broadcast_to(factors.reshape(-1, 1) ** 2, (k, 1))


def _scale(form: str, means: Floats, deviations: Floats) -> Floats:
    """Powers of two that values are divided by; one for all features where squares are added up."""
    if form == "diag":
        return power_of_two(deviations)
    p = means.shape[1]
    mean = 1.0 + (means**2).sum(axis=1).max() / p if form == "tied" else (deviations**2).mean()
    return np.full(p, power_of_two(np.sqrt(mean)))


def _table(gaussians: Gaussians, log_weights: Floats, means: Floats, precisions: Floats) -> Floats:
    """Coefficients of values, squares and one in the logarithms of weight times density, (k, m)."""
    constant = log_weights + gaussians.log_determinants - 0.5 * means.shape[1] * np.log(2.0 * np.pi)
    constant = constant - 0.5 * (means**2 * precisions).sum(axis=1)
    return np.hstack([means * precisions, -0.5 * precisions, constant[:, None]])


class _WhitenedSums:
    """Full covariances: each component's sums are of rows whitened by it, one Gram matrix of rows and ones."""

    def __init__(self, gaussians: Gaussians, log_weights: Floats, height: int) -> None:
        k, p = gaussians.means.shape
        self._middles, self._turns = gaussians.centre + gaussians.means, gaussians.precisions_cholesky
        self._constant = (log_weights + gaussians.log_determinants - 0.5 * p * np.log(2.0 * np.pi))[:, None]
        self._white, self._joint, self._away = np.empty((k, height, p)), np.empty((k, height)), np.empty((height, p))
        self._sums = RunningTotal((k, p + 1, p + 1), 4.0**-_WEIGHT_BITS)

    def joint(self, tile: Floats) -> Floats:
        for middle, turn, white, logs in zip(self._middles, self._turns, self._white, self._joint, strict=True):
            np.subtract(tile, middle, out=self._away)
            np.matmul(self._away, turn, out=white)
            np.einsum("ij,ij->i", white, white, out=logs)
        self._joint *= -0.5
        self._joint += self._constant
        return self._joint

    def _rooted(self, weights: Floats, j: int) -> Floats:
        own = np.flatnonzero(weights[j])
        roots = 2.0 ** (_WEIGHT_BITS / 2) * np.sqrt(weights[j, own])
        found = np.column_stack([self._white[j].take(own, axis=0), np.ones(len(own))])
        found *= roots[:, None]
        return np.rint(found, out=found)

    def add(self, weights: Floats) -> bool:
        rows = (self._rooted(weights, j) for j in range(len(weights)))
        found = np.stack([part.T @ part for part in rows])
        return self._sums.add(found, float(np.diagonal(found, axis1=1, axis2=2).max()))

    def add_carefully(self, weights: Floats) -> None:
        for j in range(len(weights)):
            rows = self._rooted(weights, j)
            self._sums.add_total(product_total(rows, rows, 1.0, 1.0), j)

    def totals(self) -> list[Total]:
        return [self._sums.total()]


def moments_of_sums(gaussians: Gaussians, totals: Sequence[Floats]) -> GaussianMoments:
    """Read moments out of the sums over all rows.

    totals: values of `ComponentSums.totals`. Returns about the means for full covariances, else about the centre.
    """
    p, form = gaussians.means.shape[1], gaussians.covariance_type
    if form == "full":
        back = np.linalg.inv(gaussians.precisions_cholesky.transpose(0, 2, 1))
        white = totals[0]
        first = (back @ white[:, :p, p:])[:, :, 0]
        second = back @ white[:, :p, :p] @ back.transpose(0, 2, 1)
        return GaussianMoments(white[:, p, p], first, second, gaussians.means)
    linear = totals[0]
    first, second = linear[:, :p], linear[:, p:-1] if form == "diag" else linear[:, p]
    if form == "tied":
        turn = np.linalg.inv(gaussians.precisions_cholesky)
        first, second = first @ turn, turn.T @ totals[1] @ turn
    return GaussianMoments(linear[:, -1], first, second)

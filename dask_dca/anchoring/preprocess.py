"""A first look at the data: reference axis, centre, radius, and the subspace that rows are seen in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, run_pass, step
from dask_dca.engine.sampling import fetch_rows, sample_rows, spread_rows
from dask_dca.engine.tiles import Reading, RowCensus, usable_tiles
from dask_dca.engine.types import add_parts
from dask_dca.engine.weights import draw_rows
from dask_dca.errors import InvalidInputError
from dask_dca.geometry import evenness, moments
from dask_dca.geometry.moments import SubspaceCoordinates, ratios, robust_center, subspace_frame

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.moments import Moments, Subspace
    from dask_dca.geometry.screening import Outlying


_SAMPLE: Final = (32, 64)  # runs of rows whose mean and spread set the centre and radius
_MOMENT_GROUPS: Final = 32  # runs of rows that the subspace is found from, at least
_MORE_GROUPS: Final = (1.5, 2**24, 256)  # an anchor, one for each that many entries, and at most
_MORE_PLACES: Final = 16  # times as many, where those had fewer distinct rows than anchors: a masked scene, say
_MOMENT_ROWS: Final = (2**14, 32, 2**16)  # how many rows: at least, a feature, at most
_SAMPLE_ENTRIES: Final = 2**26  # of a sample, at most: 512 MiB of float64
_UPRIGHT: Final = 0.25  # height along all ones, as a share of the sum of magnitudes, that makes a row non-negative
_MAX_AUTO: Final = 64  # greatest number of anchors that n_anchors="auto" considers
_WIDEST_MOMENTS: Final = 2048  # more features than this are seen through power steps instead of p x p moments
_POWER_STEPS: Final = 1


@dataclass(frozen=True)
class _GramState:
    """How rows are read and weighted, and how many there are."""

    reading: Reading
    mean: Floats
    energy: float
    n_total: int


@dataclass(frozen=True)
class _PowerState(_GramState):
    """The same, with feature weights and the basis to be multiplied."""

    gain: Floats
    basis: Floats


def gram(rows: Rows, reading: Reading, mean: Floats, energy: float, run: Run) -> moments.Moments:
    """Sum the exact second moments of rows.

    rows: the data, or a sample of them; mean, energy (p,): centre and radius of the Huber weights.
    """
    state = step(run, "state", _GramState, reading, mean, energy, rows.n_rows)
    job = Pass("gram", _gram_block, add_parts)
    return run_pass(rows, job, state, run)


def _gram_block(state: _GramState, start: int, *columns: Any) -> moments.Moments:
    width = len(state.mean) + 1
    found = moments.Moments(np.zeros((width, width)), 0)
    for _, scaled in usable_tiles(columns, start, state.reading, RowCensus()):
        found += moments.moments(scaled, state.mean, state.energy, state.n_total)
    return found


def power(rows: Rows, reading: Reading, start: Subspace, energy: float, basis: Floats, run: Run) -> moments.PowerSums:
    """Multiply the weighted covariance of rows by a basis: for data too wide for p x p moments.

    rows: the data, or a sample of them; energy: squared radius of the Huber weights; basis (p, m): orthonormal columns.
    """
    state = step(run, "state", _PowerState, reading, start.mean, energy, rows.n_rows, start.feature_weights, basis)
    job = Pass("power", _power_block, add_parts)
    return run_pass(rows, job, state, run)


def _power_block(state: _PowerState, start: int, *columns: Any) -> moments.PowerSums:
    found = moments.PowerSums(np.zeros(state.basis.shape), 0.0, 0)
    for _, scaled in usable_tiles(columns, start, state.reading, RowCensus()):
        found += moments.power_sums(scaled, state.mean, state.energy, state.gain, state.basis, state.n_total)
    return found


@dataclass(frozen=True)
class Preprocessed:
    """What the sample says of the data."""

    reading: Reading
    energy: float
    mean: Floats
    raw: Floats  # usable rows of the sample
    scaled: Floats  # the same, of height one
    numbers: Numbers  # their row numbers

    def heights(self) -> Floats:
        """Measure the raw rows along the reference axis.

        Returns (m,): their heights.
        """
        return self.raw.sum(axis=1) if self.reading.axis is None else self.raw @ self.reading.axis

    def frame(self, sub: moments.Subspace) -> SubspaceCoordinates:
        """Return what turns rows into places in a subspace."""
        return subspace_frame(sub, self.reading.axis, self.energy, self.reading.even)

    def scale(self, rows: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Scale further rows as these are, and tell which are usable."""
        return ratios(rows, self.reading.axis, self.reading.even)


@dataclass(frozen=True)
class Subspaces:
    """What subspaces for any number of anchors are found from: a view, and the rows that its sample was taken from."""

    view: Preprocessed
    rows: Rows
    total: Moments | None  # None where the rows are too few or too wide for moments
    run: Run
    joined: Floats  # (j, p) further rows, of height one, that the sample had missed
    rare: Numbers  # the numbers of those rows, increasing

    @property
    def n_rows(self) -> int:
        """How many rows the subspaces are found from."""
        return self.rows.n_rows + len(self.joined)

    def join(self, found: Outlying) -> Subspaces:
        """Let further rows join the sample."""
        scaled, usable = self.view.scale(found.rows)
        rare = np.union1d(self.rare, found.numbers)
        return replace(self, joined=np.vstack([self.joined, scaled[usable]]), rare=rare)

    def of(self, n_anchors: int) -> moments.Subspace:
        """Find the subspace.

        Few rows: from the rows themselves. Many: from their moments, unless these are too wide to hold.
        Returns of at most k - 1 directions that hold the anchors.
        """
        view, run = self.view, self.run
        if self.total is not None:
            return step(run, "subspace", _of_moments, view, self.total, self.joined, n_anchors)
        start = step(run, "subspace", _of_rows, view, self.joined, n_anchors)
        if _are_few(self.rows):
            return start
        basis = start.vectors
        for _ in range(_POWER_STEPS):
            basis = step(run, "subspace", moments.orthonormal, self._power(start, basis).product)
        return step(run, "subspace", moments.subspace_of_power, start, basis, self._power(start, basis), n_anchors)

    def _power(self, start: Subspace, basis: Floats) -> moments.PowerSums:
        view, more = self.view, self.joined
        found = power(self.rows, view.reading, start, view.energy, basis, self.run)
        if not len(more):
            return found
        here = (start.mean, view.energy, start.feature_weights, basis, self.rows.n_rows)
        return found + moments.power_sums(more, *here)


def look(rows: Rows, run: Run, *, nonnegative: bool, n_anchors: int | None = None, level: bool = True) -> Subspaces:
    """Sample the data, and prepare to find a subspace.

    nonnegative: refuse rows with negative entries; n_anchors: number of anchors, if known: many are sought in more
    places; level: take heights that vary no more than noise makes them for the same. Returns with axis, centre, radius,
    and the sample that they were found from.
    Raises InvalidInputError: no row of the sample has positive height.
    """
    part, chosen, sample, numbers = _sampled(rows, run, nonnegative, n_anchors, 1)
    if chosen is not None and not run.lazy and _has_few(sample, n_anchors or 2):
        part, chosen, sample, numbers = _sampled(rows, run, nonnegative, n_anchors, _MORE_PLACES)
    every = np.arange(rows.n_rows) if chosen is None else chosen
    rank = (n_anchors or min(_MAX_AUTO, rows.n_features // 4)) + moments.SPARE_EIGENPAIRS if level else None
    view = step(run, "view", _view, sample, every if numbers is None else every[numbers], nonnegative, rank)
    total = None
    if not _are_few(part) and part.n_features <= _WIDEST_MOMENTS:
        total = gram(part, view.reading, view.mean, view.energy, run)
    return Subspaces(view, part, total, run, np.zeros((0, rows.n_features)), np.zeros(0, dtype=np.int64))


def _sampled(
    rows: Rows, run: Run, nonnegative: bool, n_anchors: int | None, more: int
) -> tuple[Rows, Numbers | None, Floats, Numbers | None]:
    """Take rows for moments, in that many times as many places as usual, and of these some for the driver.

    Returns the first, which they are, the others, and which of the first these are; None where all.
    """
    least, each, most = _MOMENT_ROWS
    groups, length = _SAMPLE
    affordable = max(_SAMPLE_ENTRIES // rows.n_features, groups * 8)
    wanted = min(max(least, each * rows.n_features), most, affordable)
    places = _places(rows, n_anchors) * more
    chosen = draw_rows(rows, places, max(1, wanted // places), run)
    part = sample_rows(rows, chosen, run, nonnegative=nonnegative)
    numbers = spread_rows(part.n_rows, groups * more, max(1, min(length, affordable // groups) // more))
    return part, chosen, fetch_rows(part, numbers, run, nonnegative=nonnegative), numbers


def _has_few(sample: Floats, wanted: int) -> bool:
    """Whether there are fewer distinct rows than are wanted; it looks no further than it needs."""
    found = set[bytes]()
    for row in sample:
        found.add(row.tobytes())
        if len(found) == wanted:
            return False
    return True


def _view(sample: Floats, numbers: Numbers, nonnegative: bool, rank: int | None) -> Preprocessed:
    axis = None if nonnegative else reference_axis(sample)
    even = moments.UNEVEN if rank is None else evenness.find_level(sample, moments.heights(sample, axis), axis, rank)
    reading = Reading(axis, nonnegative, even)
    scaled, usable = ratios(sample, axis, even)
    if not usable.any():
        msg = f"no row of the sample of {len(sample)} has positive height: are all rows zero?"
        raise InvalidInputError(msg)
    if not usable.all():
        sample, scaled, numbers = sample[usable], scaled[usable], numbers[usable]
    mean, energy = robust_center(scaled)
    return Preprocessed(reading, energy, mean, sample, scaled, numbers)


def _are_few(part: Rows) -> bool:
    """Whether products of the rows are smaller than moments of the features."""
    return part.n_rows < min(part.n_features, _SAMPLE[0] * _SAMPLE[1] + 1)


def _of_moments(view: Preprocessed, total: Moments, more: Floats, n_anchors: int) -> moments.Subspace:
    if len(more):
        total += moments.moments(more, view.mean, view.energy, total.n_rows)
    return moments.subspace(total, view.mean, view.energy, n_anchors)


def _of_rows(view: Preprocessed, more: Floats, n_anchors: int) -> moments.Subspace:
    scaled = np.vstack([view.scaled, more]) if len(more) else view.scaled
    return moments.subspace_of_rows(scaled, view.mean, view.energy, n_anchors)


def _places(rows: Rows, n_anchors: int | None) -> int:
    """
    Return in how many places runs of rows are taken: by the size of the matrix, never by its chunks.

    A place costs the reading of its chunk, so there is one for each 64 MB of float32, where this is not too few.
    """
    each, entries, most = _MORE_GROUPS
    least = max(_MOMENT_GROUPS, int(each * (n_anchors or 0)))
    return max(_MOMENT_GROUPS, min(most, max(least, rows.n_copies * rows.n_features // entries)))


def reference_axis(sample: Floats) -> Floats | None:
    """All ones (None) where rows are non-negative up to noise, else the mean direction of the sample."""
    mass = np.abs(sample).sum(axis=1)
    there = mass > 0
    if not there.any():
        return None
    if np.mean(sample[there].sum(axis=1) >= _UPRIGHT * mass[there]) >= 0.95:
        return None
    norms = np.sqrt((sample[there] ** 2).sum(axis=1))
    axis = (sample[there] / norms[:, None]).mean(axis=0)
    return axis / np.sqrt((axis**2).sum())


def spectral_counts(subspaces: Subspaces, rows: Rows) -> tuple[int, int]:
    """Judge the number of anchors from the spectrum.

    Returns by_ratio, by_edge: by the largest ratio of successive eigenvalues, and by the edge of the noise.
    """
    most = min(_MAX_AUTO, rows.n_copies, rows.n_features)
    sub = subspaces.of(most)
    spectrum = np.maximum(sub.spectrum, 1e-12 * max(float(sub.spectrum[0]), 1e-300))
    ratio = spectrum[:-1] / spectrum[1:]
    most_ratio = max(1, min(most - 1, 2 * min(rows.n_copies, rows.n_features) // 3))  # the last directions may be null
    by_ratio = 2 + int(ratio[:most_ratio].argmax()) if len(ratio) else 1
    by_edge = 1 + sub.rank
    return min(by_ratio, most), min(by_edge, most)

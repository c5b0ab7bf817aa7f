"""Preprocessing: reference axis, centre and radius from a sample, and the subspace from moments of more rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.engine.passes import Pass, Run, run_pass, step
from dask_dca.engine.rows import Rows
from dask_dca.engine.sampling import fetch_rows, sample_rows, spread_rows
from dask_dca.engine.tiles import Reading, RowCounts, usable_tiles
from dask_dca.engine.types import add_parts
from dask_dca.engine.weights import draw_rows
from dask_dca.errors import InvalidInputError
from dask_dca.geometry import evenness, moments
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.moments import Moments, Subspace, SubspaceCoordinates, ratios, robust_center, subspace_frame
from dask_dca.geometry.outlying import Outlying

_SAMPLE_RUNS: Final = (32, 64)  # number of runs of rows that centre and radius are computed from, and their length
_MIN_MOMENT_RUNS: Final = 32  # least number of runs of rows that the subspace is computed from
_MOMENT_RUNS_PER_ANCHOR: Final = 1.5
_ENTRIES_PER_MOMENT_RUN: Final = 2**24  # one run for that many entries of the data: 64 MiB of float32
_MAX_MOMENT_RUNS: Final = 256
_RETRY_FACTOR: Final = 16  # multiple of the runs where the sample has fewer distinct rows than anchors: a masked scene
_MOMENT_ROWS: Final = (2**14, 32, 2**16)  # number of rows of these runs: at least, per feature, at most
_MAX_SAMPLE_ENTRIES: Final = 2**26  # greatest number of entries of a sample: 512 MiB of float64
_MIN_HEIGHT_SHARE: Final = 0.25  # sum of a row relative to that of its magnitudes from which it counts as non-negative
_MAX_AUTO: Final = 64  # greatest number of anchors that n_anchors="auto" considers
_MAX_MOMENT_FEATURES: Final = 2048  # number of features above which power steps replace p x p moments
_POWER_STEPS: Final = 1  # steps of the power iteration before the last product


@dataclass(frozen=True)
class _GramState:
    """How rows are read and weighted, and their number."""

    reading: Reading
    mean: Floats
    energy: float
    n_total: int


@dataclass(frozen=True)
class _PowerState(_GramState):
    """The same, with feature weights and the basis that the covariance is multiplied by."""

    gain: Floats
    basis: Floats


def sum_moments(rows: Rows, reading: Reading, mean: Floats, energy: float, run: Run) -> moments.Moments:
    """Sum the exact second moments of rows.

    rows: the data, or a sample of them; mean (p,), energy: centre and squared radius of the Huber weights.
    """
    state = step(run, "state", _GramState, reading, mean, energy, rows.n_rows)
    job = Pass("gram", _gram_block, add_parts)
    return run_pass(rows, job, state, run)


def _gram_block(state: _GramState, start: int, *columns: Any) -> moments.Moments:
    width = len(state.mean) + 1
    found = moments.Moments(np.zeros((width, width)), 0)
    for _, scaled in usable_tiles(columns, start, state.reading, RowCounts()):
        found += moments.moments(scaled, state.mean, state.energy, state.n_total)
    return found


def multiply_covariance(
    rows: Rows, reading: Reading, start: Subspace, energy: float, basis: Floats, run: Run
) -> moments.PowerSums:
    """Multiply the weighted covariance of rows by a basis: for data too wide for p x p moments.

    rows: the data, or a sample of them; energy: squared radius of the Huber weights; basis (p, m): orthonormal columns.
    """
    state = step(run, "state", _PowerState, reading, start.mean, energy, rows.n_rows, start.feature_weights, basis)
    job = Pass("power", _power_block, add_parts)
    return run_pass(rows, job, state, run)


def _power_block(state: _PowerState, start: int, *columns: Any) -> moments.PowerSums:
    found = moments.PowerSums(np.zeros(state.basis.shape), 0.0, 0)
    for _, scaled in usable_tiles(columns, start, state.reading, RowCounts()):
        found += moments.power_sums(scaled, state.mean, state.energy, state.gain, state.basis, state.n_total)
    return found


@dataclass(frozen=True)
class Preprocessed:
    """The usable rows of a sample, and what is estimated from them."""

    reading: Reading
    energy: float  # squared Huber radius
    mean: Floats  # (p,)
    raw: Floats  # (m, p) unscaled rows
    scaled: Floats  # (m, p) rows of height one
    numbers: Numbers  # (m,) row numbers

    def frame(self, sub: moments.Subspace) -> SubspaceCoordinates:
        """Return the coordinate frame of a subspace."""
        return subspace_frame(sub, self.reading.axis, self.energy, self.reading.even)

    def scale(self, rows: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Scale further rows in the same way; returns them, and which are usable."""
        return ratios(rows, self.reading.axis, self.reading.even)


@dataclass(frozen=True)
class Subspaces:
    """What subspaces for any number of anchors are computed from: a preprocessed sample, and moments of more rows."""

    view: Preprocessed
    rows: Rows
    total: Moments | None  # None where the rows are too few or too wide for moments
    run: Run
    joined: Floats  # (j, p) rows of height one that were added because the sample had missed them
    rare: Numbers  # the numbers of those rows, increasing

    @property
    def n_rows(self) -> int:
        """Number of rows that the subspaces are computed from."""
        return self.rows.n_rows + len(self.joined)

    def join(self, found: Outlying) -> Subspaces:
        """Add outlying rows to the sample."""
        scaled, usable = self.view.scale(found.rows)
        rare = np.union1d(self.rare, found.numbers)
        return replace(self, joined=np.vstack([self.joined, scaled[usable]]), rare=rare)

    def of(self, n_anchors: int) -> moments.Subspace:
        """Compute the subspace for k anchors, whose anchor directions are at most k - 1.

        It comes from the rows themselves if they are few, else from their moments or, if these are too large, from
        power steps.
        """
        view, run = self.view, self.run
        if self.total is not None:
            return step(run, "subspace", _subspace_of_moments, view, self.total, self.joined, n_anchors)
        start = step(run, "subspace", _subspace_of_rows, view, self.joined, n_anchors)
        if _is_small(self.rows):
            return start
        basis = start.vectors
        for _ in range(_POWER_STEPS):
            basis = step(run, "subspace", moments.orthonormal, self._power(start, basis).product)
        return step(run, "subspace", moments.subspace_of_power, start, basis, self._power(start, basis), n_anchors)

    def _power(self, start: Subspace, basis: Floats) -> moments.PowerSums:
        view, more = self.view, self.joined
        found = multiply_covariance(self.rows, view.reading, start, view.energy, basis, self.run)
        if not len(more):
            return found
        here = (start.mean, view.energy, start.feature_weights, basis, self.rows.n_rows)
        return found + moments.power_sums(more, *here)


def prepare_subspaces(
    rows: Rows, run: Run, *, nonnegative: bool, n_anchors: int | None = None, level: bool = True
) -> Subspaces:
    """Sample the data and prepare the computation of subspaces.

    nonnegative: refuse negative entries; n_anchors: number of anchors, if given, which sets the number of runs; level:
    treat heights that are equal up to noise as equal.
    Raises InvalidInputError: no row of the sample has positive height.
    """
    part, chosen, sample, numbers = _draw_samples(rows, run, nonnegative, n_anchors, 1)
    if chosen is not None and not run.lazy and _has_few_distinct_rows(sample, n_anchors or 2):
        part, chosen, sample, numbers = _draw_samples(rows, run, nonnegative, n_anchors, _RETRY_FACTOR)
    every = np.arange(rows.n_rows) if chosen is None else chosen
    rank = (n_anchors or min(_MAX_AUTO, rows.n_features // 4)) + moments.SPARE_EIGENPAIRS if level else None
    numbers = every if numbers is None else every[numbers]
    view = step(run, "view", _preprocess_sample, sample, numbers, nonnegative, rank)
    total = None
    if not _is_small(part) and part.n_features <= _MAX_MOMENT_FEATURES:
        total = sum_moments(part, view.reading, view.mean, view.energy, run)
    return Subspaces(view, part, total, run, np.zeros((0, rows.n_features)), np.zeros(0, dtype=np.int64))


def _draw_samples(
    rows: Rows, run: Run, nonnegative: bool, n_anchors: int | None, more: int
) -> tuple[Rows, Numbers | None, Floats, Numbers | None]:
    """Draw rows for moments, in `more` times the usual number of runs, and some of these for the driver.

    Returns the first, their numbers, the second, and which of the first these are; numbers are None for all rows.
    """
    least, each, most = _MOMENT_ROWS
    groups, length = _SAMPLE_RUNS
    affordable = max(_MAX_SAMPLE_ENTRIES // rows.n_features, groups * 8)
    wanted = min(max(least, each * rows.n_features), most, affordable)
    places = _n_runs(rows, n_anchors) * more
    chosen = draw_rows(rows, places, max(1, wanted // places), run)
    part = sample_rows(rows, chosen, run, nonnegative=nonnegative)
    numbers = spread_rows(part.n_rows, groups * more, max(1, min(length, affordable // groups) // more))
    return part, chosen, fetch_rows(part, numbers, run, nonnegative=nonnegative), numbers


def _has_few_distinct_rows(sample: Floats, wanted: int) -> bool:
    """Whether a sample has fewer distinct rows than wanted."""
    found = set[bytes]()
    for row in sample:
        found.add(row.tobytes())
        if len(found) == wanted:
            return False
    return True


def _preprocess_sample(sample: Floats, numbers: Numbers, nonnegative: bool, rank: int | None) -> Preprocessed:
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


def _is_small(part: Rows) -> bool:
    """Whether inner products of the rows are smaller than moments of the features."""
    return part.n_rows < min(part.n_features, _SAMPLE_RUNS[0] * _SAMPLE_RUNS[1] + 1)


def _subspace_of_moments(view: Preprocessed, total: Moments, more: Floats, n_anchors: int) -> moments.Subspace:
    if len(more):
        total += moments.moments(more, view.mean, view.energy, total.n_rows)
    return moments.subspace(total, view.mean, view.energy, n_anchors)


def _subspace_of_rows(view: Preprocessed, more: Floats, n_anchors: int) -> moments.Subspace:
    scaled = np.vstack([view.scaled, more]) if len(more) else view.scaled
    return moments.subspace_of_rows(scaled, view.mean, view.energy, n_anchors)


def _n_runs(rows: Rows, n_anchors: int | None) -> int:
    """Number of runs of rows that moments are taken of, by the size of the matrix, not by its chunks.

    A run costs reading its chunk, so that there is one for each 64 MiB of float32, if these are enough.
    """
    by_size = rows.n_copies * rows.n_features // _ENTRIES_PER_MOMENT_RUN
    wanted = max(int(_MOMENT_RUNS_PER_ANCHOR * (n_anchors or 0)), by_size)
    return max(_MIN_MOMENT_RUNS, min(_MAX_MOMENT_RUNS, wanted))


def reference_axis(sample: Floats) -> Floats | None:
    """All ones (None) where rows are non-negative up to noise, else the mean direction of the sample."""
    mass = np.abs(sample).sum(axis=1)
    there = mass > 0
    if not there.any():
        return None
    if np.mean(sample[there].sum(axis=1) >= _MIN_HEIGHT_SHARE * mass[there]) >= 0.95:
        return None
    norms = np.sqrt((sample[there] ** 2).sum(axis=1))
    axis = (sample[there] / norms[:, None]).mean(axis=0)
    return axis / np.sqrt((axis**2).sum())


def spectral_counts(subspaces: Subspaces, rows: Rows) -> tuple[int, int]:
    """Estimate the number of anchors from the spectrum.

    Returns two estimates, by the largest ratio of successive eigenvalues and by the noise edge.
    """
    most = min(_MAX_AUTO, rows.n_copies, rows.n_features)
    sub = subspaces.of(most)
    spectrum = np.maximum(sub.spectrum, 1e-12 * max(float(sub.spectrum[0]), 1e-300))
    ratio = spectrum[:-1] / spectrum[1:]
    most_ratio = max(1, min(most - 1, 2 * min(rows.n_copies, rows.n_features) // 3))  # the last eigenvalues may be zero
    by_ratio = 2 + int(ratio[:most_ratio].argmax()) if len(ratio) else 1
    by_edge = 1 + sub.rank
    return min(by_ratio, most), min(by_edge, most)

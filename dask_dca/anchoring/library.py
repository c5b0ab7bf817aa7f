"""Robust MCH(X, Y): which rows of a library the data are mixtures of, by MUSIC's ranking and maximum likelihood.

The data are summarised by a few rows, their mean and their principal directions, whose entries have a known estimation
error. Library rows are selected so that the distance of these rows from their span is least (R. Schmidt, Multiple
emitter location, IEEE Transactions on Antennas and Propagation 34, 1986; P. Stoica and A. Nehorai, MUSIC, maximum
likelihood, and Cramer-Rao bound, IEEE Transactions on Acoustics 37, 1989, compare the two).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.anchoring.parameters import AnchorResult, Settings, certify, evaluation_rows
from dask_dca.anchoring.preprocess import prepare_subspaces, spectral_counts
from dask_dca.anchoring.robust import Known, Voted, collect_votes, fetch_known
from dask_dca.engine.passes import Run, step
from dask_dca.engine.rows import Rows
from dask_dca.errors import IncompleteLibraryWarning, InvalidParameterError, warn
from dask_dca.geometry import votes
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.moments import coordinates, feature_offsets, huber_weights, ratios
from dask_dca.geometry.nnls import nonnegative_coefficients
from dask_dca.geometry.planes import binary_scale

_MAX_SWEEPS: Final = 20  # greatest number of sweeps of swaps
_LOSS_TOL: Final = 1e-9  # relative decrease of the loss below which a swap is not made
_SPAN_TOL: Final = 1e-12  # share of a row's energy outside the span of others up to which it counts as inside
# noise may leave this multiple of the expected residual energy, and `_MAX_CHANCE_DEVIATIONS` of its standard deviations
_MAX_CHANCE_ENERGY: Final = 1.3
_MAX_CHANCE_DEVIATIONS: Final = 3.0
_THRESHOLD_FACTOR: Final = 2.0  # margin on the greatest gain that noise makes among all rows of the library
_MAX_GROUP_ROWS: Final = 256  # greatest number of rows of a group
_EXTRA_ROWS: Final = 3  # rows that are tried beyond the rank of the data where their number is to be found
_MAX_LIBRARY_ENTRIES: Final = 2**25  # greatest number of entries of a library, which is in memory on the driver
_MAX_EXTREMES: Final = 64  # greatest number of extreme rows that select among rows of one span
_MIN_NOISE: Final = 2.0**-34  # least noise variance, as a share of the energy
_MAX_UNEXPLAINED: Final = 0.01  # share of the spread above which, if it is not chance, a warning is given


@dataclass(frozen=True)
class Signal:
    """A summary of the data in weighted features."""

    rows: Floats  # (t, p) the mean, then principal directions times their standard deviations
    noise: Floats  # (t,) error variance of an entry of each
    extremes: Floats  # (c, p) rows on the convex hull of the data
    scatter: float  # energy of the extremes outside the true cone that noise explains


@dataclass(frozen=True)
class LibrarySelection:
    """The selected rows of a library."""

    indices: Numbers  # (k,)
    groups: tuple[Numbers, ...]  # for each, the rows that the data can't tell from it, itself first
    offset: bool  # whether a constant is mixed in as well
    unexplained: float  # share of the data's spread outside the span of the rows, beyond noise
    is_complete: bool  # whether noise explains that share


@dataclass(frozen=True)
class _Problem:
    """Signal in units of its noise, and unit rows of the library (atoms), both without the nuisance direction."""

    signal: Floats
    extremes: Floats
    scatter: float
    atoms: Floats
    dof: int  # dimension of the rows

    def spare(self, n_rows: int) -> int:
        """Residual degrees of freedom after a fit of n rows."""
        return len(self.signal) * max(self.dof - n_rows, 0)

    def level(self, loss: float, n_rows: int) -> float:
        """Residual variance per degree of freedom, at least that of the noise."""
        return max(1.0, loss / max(self.spare(n_rows), 1))

    def threshold(self, level: float) -> float:
        """Greatest decrease of the loss by one further row that noise alone explains, with a margin."""
        t, choices = len(self.signal), np.log(len(self.atoms))
        return _THRESHOLD_FACTOR * level * (t + 2.0 * np.sqrt(t * choices) + 2.0 * choices)


def select_library_rows(
    signal: Signal, library: Floats, constant: Floats, n_rows: int | None, *, n_fixed: int = 0, most: int = 0
) -> LibrarySelection:
    """Select the rows of a library that the data are mixtures of.

    library (m, p): in the same weighted features, the first n_fixed rows are selected in any case; constant (p,): a
    nuisance direction that is projected out if this explains more; n_rows: None if it is to be estimated, about `most`.
    Returns the fixed rows first, then the others, those that explain most first.
    """
    problems = [_make_problem(signal, library, nuisance) for nuisance in (None, constant)]
    found = [_search_rows(problem, n_rows, n_fixed, most) for problem in problems]
    pairs = list(zip(problems, found, strict=True))
    # least decrease of the loss by a further row, or by the nuisance
    each = min(problem.threshold(problem.level(loss, len(chosen))) for problem, (chosen, loss) in pairs)
    (few, loss), (others, less) = found
    offset = bool(problems[1].spare(len(others)) > 0 and loss - less + each * (len(few) - len(others)) > each)
    problem, chosen = problems[offset], found[offset][0]
    chosen, groups = _resolve_by_cone(problem, chosen, n_fixed)
    worth = [_residual_energy(problem, _without(chosen, place)).sum() for place in range(len(chosen))]
    order = [*range(n_fixed), *sorted(range(n_fixed, len(chosen)), key=lambda place: -worth[place])]
    near = tuple(groups[place] for place in order)
    return LibrarySelection(np.array(chosen)[order], near, offset, *_unexplained_share(problem, signal, chosen))


def _unexplained_share(problem: _Problem, signal: Signal, chosen: Sequence[int]) -> tuple[float, bool]:
    """Share of the data's spread that is not explained, and whether noise explains it."""
    left, each = _residual_energy(problem, chosen), max(problem.dof - len(chosen), 0)
    spread = signal.rows[1:] if len(left) > 1 else signal.rows
    beyond = max(float((left - each) @ signal.noise), 0.0) / float((spread**2).sum())
    expected = each * len(left)
    most = _MAX_CHANCE_ENERGY * expected + _MAX_CHANCE_DEVIATIONS * np.sqrt(2.0 * expected)
    return float(np.sqrt(beyond)), bool(left.sum() <= most)


def _make_problem(signal: Signal, library: Floats, nuisance: Floats | None) -> _Problem:
    """Whiten the signal, and project the nuisance out of all rows."""
    library = binary_scale(library)  # rows are rays; so scaled, their squares are in range
    parts = [signal.rows / np.sqrt(signal.noise)[:, None], signal.extremes, library]
    if nuisance is not None:
        unit = nuisance / np.linalg.norm(nuisance)
        parts = [part - np.outer(part @ unit, unit) for part in parts]
    rows, extremes, atoms = parts
    lengths, whole = np.linalg.norm(atoms, axis=1), np.linalg.norm(library, axis=1)
    there = lengths > np.sqrt(_SPAN_TOL) * whole  # a row along the nuisance is never selected
    atoms = np.where(there, 1.0 / np.where(there, lengths, 1.0), 0.0)[:, None] * atoms
    return _Problem(rows, extremes, signal.scatter, atoms, rows.shape[1] - (nuisance is not None))


def _search_rows(problem: _Problem, n_rows: int | None, n_fixed: int, most: int) -> tuple[list[int], float]:
    """Search the rows whose span has the least residual energy; returns them, and that energy."""
    fixed = list(range(n_fixed))
    ranked = [*fixed, *(int(i) for i in _rank_by_music(problem) if i >= n_fixed)]

    def _best(start: list[int], count: int) -> tuple[list[int], float]:
        found = [_add_and_swap(problem, begin, count, n_fixed) for begin in (start, ranked[:count])]
        return min(found, key=lambda pair: pair[1])

    if n_rows is not None:
        return _best(fixed, n_rows)
    counts = range(max(1, n_fixed), max(1, n_fixed, min(most + _EXTRA_ROWS, len(problem.atoms), problem.dof - 1)) + 1)
    path = [_best(fixed, counts[0])]
    for count in counts[1:]:
        path.append(_best(path[-1][0], count))
    last, loss = path[-1]
    least = problem.threshold(problem.level(loss, len(last)))
    gains = [before - after for (_, before), (_, after) in pairwise(path)]
    return path[max((i + 1 for i, gain in enumerate(gains) if gain > least), default=0)]


def _rank_by_music(problem: _Problem) -> NDArray[np.intp]:
    """Rank the rows of the library by their distance from the span of the signal: MUSIC."""
    basis = np.linalg.qr(problem.signal.T)[0]
    near = ((problem.atoms @ basis) ** 2).sum(axis=1)
    return np.argsort(-near, kind="stable")


def _add_and_swap(problem: _Problem, start: Sequence[int], n_rows: int, n_fixed: int) -> tuple[list[int], float]:
    """Add rows greedily, then swap each for the best one given the others until nothing changes."""
    chosen = list(start)
    while len(chosen) < n_rows:
        chosen.append(int(_losses_with_each(problem, chosen).argmin()))
    for _ in range(_MAX_SWEEPS):
        before = list(chosen)
        for place in range(n_fixed, len(chosen)):
            losses = _losses_with_each(problem, _without(chosen, place))
            best = int(losses.argmin())
            if losses[best] < losses[chosen[place]] * (1.0 - _LOSS_TOL):
                chosen[place] = best
        if chosen == before:
            break
    return chosen, float(_residual_energy(problem, chosen).sum())


def _losses_with_each(problem: _Problem, chosen: Sequence[int]) -> Floats:
    """Residual energy of the signal with each row of the library added to the chosen ones; (m,)."""
    basis = np.linalg.qr(problem.atoms[chosen].T)[0]
    rest = problem.signal - (problem.signal @ basis) @ basis.T
    remaining = problem.atoms - (problem.atoms @ basis) @ basis.T
    energy = (remaining**2).sum(axis=1)
    there = energy > _SPAN_TOL
    gains = np.where(there, ((remaining @ rest.T) ** 2).sum(axis=1) / np.where(there, energy, 1.0), 0.0)
    gains[chosen] = -1.0
    return np.asarray((rest**2).sum() - gains)


def _residual_energy(problem: _Problem, chosen: Sequence[int]) -> Floats:
    """Residual energy of each row of the signal outside the span of some rows; (t,)."""
    basis = np.linalg.qr(problem.atoms[chosen].T)[0]
    return np.asarray(((problem.signal - (problem.signal @ basis) @ basis.T) ** 2).sum(axis=1))


def _without(chosen: Sequence[int], place: int) -> list[int]:
    return [*chosen[:place], *chosen[place + 1 :]]


def _alternatives(problem: _Problem, chosen: Sequence[int], place: int) -> Numbers:
    """The rows that could replace one of the chosen at about the same residual energy, itself first."""
    losses = _losses_with_each(problem, _without(chosen, place))
    own = float(losses[chosen[place]])
    near = losses <= own + problem.threshold(problem.level(own, len(chosen)))
    near[chosen] = False
    others = np.flatnonzero(near)
    nearest = others[np.argsort(losses[others], kind="stable")][:_MAX_GROUP_ROWS]
    return np.array([chosen[place], *nearest], dtype=np.int64)


def _resolve_by_cone(problem: _Problem, chosen: Sequence[int], n_fixed: int) -> tuple[list[int], list[Numbers]]:
    """Among rows of about the same span choose those whose cone contains the extreme rows best.

    Returns them, and for each the rows that neither span nor cone distinguishes from it, itself first.
    """
    chosen, groups = list(chosen), [np.zeros(0, dtype=np.int64)] * len(chosen)
    for _ in range(_MAX_SWEEPS):
        before = list(chosen)
        for place, row in enumerate(before):
            groups[place] = _alternatives(problem, chosen, place)
            if len(groups[place]) > 1:
                groups[place] = _best_covering(problem, _without(chosen, place), groups[place])
            chosen[place] = row if place < n_fixed else int(groups[place][0])
        if chosen == before:
            break
    return chosen, groups


def _best_covering(problem: _Problem, others: Sequence[int], rows: Numbers) -> Numbers:
    """The rows of a group whose cones contain the extremes as well as the best one, up to noise; the best first.

    The first row stays first if it is among them.
    """
    cones = [problem.atoms[[*others, int(row)]] for row in rows]
    inside = [nonnegative_coefficients(problem.extremes, cone) @ cone for cone in cones]
    outside = np.array([((problem.extremes - nearest) ** 2).sum() for nearest in inside])
    enough = outside.min() * (1.0 + _LOSS_TOL) + problem.scatter + _SPAN_TOL * float((problem.extremes**2).sum())
    if outside[0] <= enough:
        return rows[outside <= enough]
    best = int(outside.argmin())
    return np.array([rows[best], *rows[(outside <= enough) & (rows != rows[best])]], dtype=np.int64)


def library_anchors(
    rows: Rows, library: Rows, n_anchors: int | None, settings: Settings, run: Run, known: Known | None = None
) -> AnchorResult:
    """Select the rows of a library that the data are mixtures of.

    The divide step finds the subspace of the data and its extreme rows; the driver selects the rows of the library
    whose span is nearest to the subspace and, among those of about the same span, whose cone contains the extreme rows.
    library: few rows, in memory on the driver; n_anchors: estimated from the data if None.
    Raises InvalidParameterError: the library is too large, or has fewer rows than n_anchors.
    """
    _check_library(library, n_anchors)
    atoms = fetch_known(library, None, run)
    subspaces = prepare_subspaces(rows, run, nonnegative=False, n_anchors=n_anchors, level=False)
    wanted = max(spectral_counts(subspaces, rows)) if n_anchors is None else n_anchors
    dims = min(wanted + 1, rows.n_rows, rows.n_features)  # one more for a constant that may be mixed in
    voted, _ = collect_votes(rows, subspaces, dims, settings, run)
    return step(run, "anchors", _select, voted, atoms, n_anchors, known)


def _check_library(library: Rows, n_anchors: int | None) -> None:
    if library.n_rows * library.n_features > _MAX_LIBRARY_ENTRIES:
        msg = (
            f"Y has {library.n_rows:,} rows of {library.n_features:,} features: too many for a library of known rows, "
            "which is held in memory; use method='paper', which takes any number"
        )
        raise InvalidParameterError(msg)
    if n_anchors is not None and n_anchors > library.n_rows:
        msg = f"n_anchors={n_anchors} exceeds the {library.n_rows} rows of Y; use at most {library.n_rows}"
        raise InvalidParameterError(msg)


def _select(voted: Voted, library: Floats, n_anchors: int | None, known: Known | None) -> AnchorResult:
    """Select rows of the library, and certify them; runs on the driver."""
    numbers, fixed = np.arange(len(library)), 0
    if known is not None:
        others, fixed = numbers[~np.isin(numbers, known.numbers)], len(known.rows)
        numbers, library = np.concatenate([known.numbers, others]), np.vstack([known.rows, library[others]])
    sub = voted.plan.sub
    weights = sub.feature_weights
    selected = select_library_rows(
        _summarise_data(voted, n_anchors), library * weights, weights, n_anchors, n_fixed=fixed, most=1 + sub.rank
    )
    result = _certify(voted, selected, numbers, library[selected.indices])
    if selected.unexplained > _MAX_UNEXPLAINED and not selected.is_complete:
        warn(
            f"{selected.unexplained:.1%} of the spread of X lies outside the span of the rows of Y that explain most: "
            "Y seems to lack a row; add it, ask for more anchors, or look at find_anchors(X, n) without Y",
            IncompleteLibraryWarning,
        )
    return result


def _summarise_data(voted: Voted, n_anchors: int | None) -> Signal:
    """Summarise the data in weighted features: their mean, and the principal directions above the noise."""
    sub, places = voted.plan.sub, voted.found.votes.places
    centre = sub.mean * sub.feature_weights
    spanned = np.vstack([centre, sub.basis.T * sub.scales[:, None]])
    noise, per_row = _error_variances(voted)
    clear = sub.spectrum[: len(sub.scales)] > _noise_edge(voted) * noise[1:] * voted.n_sampled
    clear = np.concatenate([[True], clear & (n_anchors != 1)])  # rows of a single component differ by noise alone
    some = places[:: -(-len(places) // _MAX_EXTREMES)]
    return Signal(spanned[clear], noise[clear], centre + feature_offsets(some, voted.plan.frame), per_row * some.size)


def _error_variances(voted: Voted) -> tuple[Floats, float]:
    """Error variance of an entry of the mean and of each direction, and noise variance of an entry of a row.

    Rows of different noise are weighted by their influence on a direction.
    """
    sub, view = voted.plan.sub, voted.view
    p, r = sub.basis.shape
    per_row = sub.noise
    if len(sub.spectrum) == p:  # there are no further eigenvalues that the noise was estimated from
        others = sub.spectrum[r:][sub.spectrum[r:] > _MIN_NOISE * sub.spectrum[0]]
        per_row = float(others.mean()) if len(others) else 0.0
    centred = view.scaled - sub.mean
    weights = huber_weights(centred, view.energy) ** 2
    centred *= sub.feature_weights
    inside = centred @ sub.basis
    outside = weights * np.maximum((centred**2).sum(axis=1) - (inside**2).sum(axis=1), 0.0)
    shares = weights[:, None] * np.hstack([np.ones((len(inside), 1)), inside]) ** 2
    relative = (outside @ shares) / np.maximum(outside.mean() * shares.sum(axis=0), 1e-300)
    rounding = _MIN_NOISE * float((sub.scales**2).sum() + ((sub.mean * sub.feature_weights) ** 2).sum())
    return np.maximum(per_row * relative, rounding) / voted.n_sampled, per_row


def _noise_edge(voted: Voted) -> float:
    """Greatest eigenvalue of noise, the noise edge, as a multiple of its variance."""
    p, r = voted.plan.sub.basis.shape
    unsure = 1.0 + 2.0 / np.sqrt(max(p - r, 1))  # the noise is estimated from few directions
    return float(unsure * (1.0 + np.sqrt(p / voted.n_sampled)) ** 2)


def _certify(voted: Voted, selected: LibrarySelection, numbers: Numbers, rows: Floats) -> AnchorResult:
    plan, found, view = voted.plan, voted.found, voted.view
    directions, s = plan.planes.regenerate(), plan.planes.count
    reach = np.vstack([np.ones((int(selected.offset), rows.shape[1])), rows])
    scaled, usable = ratios(reach, view.reading.axis)
    places = np.where(usable[:, None], coordinates(scaled, plan.frame), 0.0)
    signed = np.concatenate([directions[:s], -directions[:s]])  # no fresh ones: library rows have no noise
    short = votes.shortfalls(places, signed, found.votes.heights.ravel(), plan.rounding)
    curve = votes.coverage_curve(short)[int(selected.offset) :]
    heights = places[int(selected.offset) :] @ directions[:s].T
    high, low = heights.argmax(axis=0), heights.argmin(axis=0)
    ends = np.concatenate([high, low[low != high]])  # a row has one vote per plane
    own, indices = np.bincount(ends, minlength=len(rows)), numbers[selected.indices]
    order = np.argsort(indices, kind="stable")
    return certify(
        indices,
        (indices[order], own[order]),
        s,
        own=own,
        curve=curve,
        row_counts=found.row_counts,
        sample=evaluation_rows(view.raw),
        rows=rows,
        rare_rows=voted.rare,
        groups=tuple(numbers[group] for group in selected.groups),
        offset=selected.offset,
        unexplained=selected.unexplained,
    )

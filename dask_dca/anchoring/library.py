"""Robust MCH(X, Y): which rows of a library the data are mixtures of: MUSIC's ranking, and a likelihood, by swaps.

The data come as a few rows that span what they span (their mean, and their principal directions, as long as the data
are wide), each entry of which has the noise of an estimate. A set of library rows explains them as well as its span
comes near (Schmidt, Multiple emitter location, IEEE Transactions on Antennas and Propagation 34, 1986; Stoica and
Nehorai, MUSIC, maximum likelihood, and Cramer-Rao bound, IEEE Transactions on Acoustics 37, 1989, compare the two).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.anchoring.literal import same_space
from dask_dca.anchoring.parameters import certified, judges
from dask_dca.anchoring.preprocess import look, spectral_counts
from dask_dca.anchoring.robust import fetch_known, vote
from dask_dca.engine.passes import step
from dask_dca.errors import IncompleteLibraryWarning, InvalidParameterError, warn
from dask_dca.geometry import votes
from dask_dca.geometry.moments import coordinates, feature_offsets, huber_weights, ratios
from dask_dca.geometry.nnls import nonnegative_coefficients
from dask_dca.geometry.planes import binary_scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.anchoring.parameters import AnchorResult, Settings
    from dask_dca.anchoring.robust import Known, Voted
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers

_SWEEPS: Final = 20
_GAIN: Final = 1e-9  # of the loss, below which a swap is rounding
_IN_SPAN: Final = 1e-12  # of its energy outside the others: a row that they span
_CHANCE: Final = (1.3, 3.0)  # times the expected energy, and times its standard deviation: noise leaves no more
_DOUBT: Final = 2.0  # times the greatest gain that noise makes among all rows of the library
_MOST_ALIKE: Final = 256  # rows of a group
_SPARE: Final = 3  # rows that are tried beyond the rank of the data, where their number is to be found
_MOST_ENTRIES: Final = 2**25  # of a library, which the driver holds
_EXTREMES: Final = 64  # extreme rows that a cone should hold, at most
_ROUNDING: Final = 2.0**-34  # of the energy, as noise at least
_UNEXPLAINED: Final = 0.01  # of the data's spread: more tells that the library lacks a row, if it is not chance


@dataclass(frozen=True)
class Signal:
    """What the data span, in weighted features."""

    rows: Floats  # (t, p) the mean, then principal directions, as long as the data are wide
    noise: Floats  # (t,) variance of an entry of each
    extremes: Floats  # (c, p) rows on the hull of the data
    scatter: float  # energy of the extremes that noise may put outside the right cone


@dataclass(frozen=True)
class Named:
    """The rows of a library that the data are mixtures of."""

    indices: Numbers  # (k,)
    groups: tuple[Numbers, ...]  # for each, the rows that could stand in its place, itself first
    offset: bool  # a constant is mixed in as well
    unexplained: float  # share of the data's spread outside the span of the rows, beyond noise
    is_complete: bool  # whether this may be chance


@dataclass(frozen=True)
class _Problem:
    """The signal and the library's rows of unit length, both without the nuisance."""

    signal: Floats
    extremes: Floats
    scatter: float
    atoms: Floats
    dof: int  # dimensions of the rows

    def spare(self, n_rows: int) -> int:
        """Entries of the signal that n rows can't fit."""
        return len(self.signal) * max(self.dof - n_rows, 0)

    def level(self, loss: float, n_rows: int) -> float:
        """Variance of an entry: the noise, or what is left where this is more."""
        return max(1.0, loss / max(self.spare(n_rows), 1))

    def threshold(self, level: float) -> float:
        """Energy that the best of all rows of the library gains on noise alone, with a margin."""
        t, choices = len(self.signal), np.log(len(self.atoms))
        return _DOUBT * level * (t + 2.0 * np.sqrt(t * choices) + 2.0 * choices)


def name_rows(
    signal: Signal, library: Floats, constant: Floats, n_rows: int | None, *, n_fixed: int = 0, most: int = 0
) -> Named:
    """Name the rows of a library whose cone holds the data.

    library (m, p): its rows, in the same weighted features, the first n_fixed of which are named in any case; constant
    (p,): a nuisance, taken out of all rows where the data ask for it; n_rows: how many; None: as many as the data
    speak for, about `most`. Returns them, those that explain most first, after the fixed ones.
    """
    problems = [_problem(signal, library, nuisance) for nuisance in (None, constant)]
    found = [_chosen(problem, n_rows, n_fixed, most) for problem in problems]
    pairs = list(zip(problems, found, strict=True))
    # what a row more, or the nuisance, has to explain
    each = min(problem.threshold(problem.level(loss, len(chosen))) for problem, (chosen, loss) in pairs)
    (few, loss), (others, less) = found
    offset = bool(problems[1].spare(len(others)) > 0 and loss - less + each * (len(few) - len(others)) > each)
    problem, chosen = problems[offset], found[offset][0]
    chosen, groups = _hold_extremes(problem, chosen, n_fixed)
    worth = [_left(problem, _without(chosen, place)).sum() for place in range(len(chosen))]
    order = [*range(n_fixed), *sorted(range(n_fixed, len(chosen)), key=lambda place: -worth[place])]
    near = tuple(groups[place] for place in order)
    return Named(np.array(chosen)[order], near, offset, *_unexplained(problem, signal, chosen))


def _unexplained(problem: _Problem, signal: Signal, chosen: Sequence[int]) -> tuple[float, bool]:
    """Share of the data's spread that is not explained, and whether noise may leave as much."""
    left, each = _left(problem, chosen), max(problem.dof - len(chosen), 0)
    spread = signal.rows[1:] if len(left) > 1 else signal.rows
    beyond = max(float((left - each) @ signal.noise), 0.0) / float((spread**2).sum())
    expected = each * len(left)
    return float(np.sqrt(beyond)), bool(left.sum() <= _CHANCE[0] * expected + _CHANCE[1] * np.sqrt(2.0 * expected))


def _problem(signal: Signal, library: Floats, nuisance: Floats | None) -> _Problem:
    library = binary_scale(library)  # rays: squares in range
    parts = [signal.rows / np.sqrt(signal.noise)[:, None], signal.extremes, library]
    if nuisance is not None:
        unit = nuisance / np.linalg.norm(nuisance)
        parts = [part - np.outer(part @ unit, unit) for part in parts]
    rows, extremes, atoms = parts
    lengths, whole = np.linalg.norm(atoms, axis=1), np.linalg.norm(library, axis=1)
    there = lengths > np.sqrt(_IN_SPAN) * whole  # a row that the nuisance is can't be named
    atoms = np.where(there, 1.0 / np.where(there, lengths, 1.0), 0.0)[:, None] * atoms
    return _Problem(rows, extremes, signal.scatter, atoms, rows.shape[1] - (nuisance is not None))


def _chosen(problem: _Problem, n_rows: int | None, n_fixed: int, most: int) -> tuple[list[int], float]:
    """Rows of the library whose span leaves least of the signal, and what it leaves."""
    fixed = list(range(n_fixed))
    ranked = [*fixed, *(int(i) for i in _by_residual(problem) if i >= n_fixed)]

    def _best(start: list[int], count: int) -> tuple[list[int], float]:
        found = [_searched(problem, begin, count, n_fixed) for begin in (start, ranked[:count])]
        return min(found, key=lambda pair: pair[1])

    if n_rows is not None:
        return _best(fixed, n_rows)
    counts = range(max(1, n_fixed), max(1, n_fixed, min(most + _SPARE, len(problem.atoms), problem.dof - 1)) + 1)
    path = [_best(fixed, counts[0])]
    for count in counts[1:]:
        path.append(_best(path[-1][0], count))
    last, loss = path[-1]
    least = problem.threshold(problem.level(loss, len(last)))
    gains = [before - after for (_, before), (_, after) in pairwise(path)]
    return path[max((i + 1 for i, gain in enumerate(gains) if gain > least), default=0)]


def _by_residual(problem: _Problem) -> NDArray[np.intp]:
    """Rows of the library by their distance from what the signal spans."""
    basis = np.linalg.qr(problem.signal.T)[0]
    near = ((problem.atoms @ basis) ** 2).sum(axis=1)
    return np.argsort(-near, kind="stable")


def _searched(problem: _Problem, start: Sequence[int], n_rows: int, n_fixed: int) -> tuple[list[int], float]:
    """Add rows one by one, then exchange each for the one that serves best beside the others, until none does."""
    chosen = list(start)
    while len(chosen) < n_rows:
        chosen.append(int(_losses(problem, chosen).argmin()))
    for _ in range(_SWEEPS):
        before = list(chosen)
        for place in range(n_fixed, len(chosen)):
            losses = _losses(problem, _without(chosen, place))
            best = int(losses.argmin())
            if losses[best] < losses[chosen[place]] * (1.0 - _GAIN):
                chosen[place] = best
        if chosen == before:
            break
    return chosen, float(_left(problem, chosen).sum())


def _losses(problem: _Problem, chosen: Sequence[int]) -> Floats:
    """What the span of the chosen rows and one more leaves of the signal, for each row of the library."""
    basis = np.linalg.qr(problem.atoms[chosen].T)[0]
    rest = problem.signal - (problem.signal @ basis) @ basis.T
    beside = problem.atoms - (problem.atoms @ basis) @ basis.T
    energy = (beside**2).sum(axis=1)
    there = energy > _IN_SPAN
    gains = np.where(there, ((beside @ rest.T) ** 2).sum(axis=1) / np.where(there, energy, 1.0), 0.0)
    gains[chosen] = -1.0
    return np.asarray((rest**2).sum() - gains)


def _left(problem: _Problem, chosen: Sequence[int]) -> Floats:
    """What the span of some rows leaves of each row of the signal."""
    basis = np.linalg.qr(problem.atoms[chosen].T)[0]
    return np.asarray(((problem.signal - (problem.signal @ basis) @ basis.T) ** 2).sum(axis=1))


def _without(chosen: Sequence[int], place: int) -> list[int]:
    return [*chosen[:place], *chosen[place + 1 :]]


def _alternatives(problem: _Problem, chosen: Sequence[int], place: int) -> Numbers:
    """The rows that leave about as little of the signal in the place of one of the chosen, itself first."""
    losses = _losses(problem, _without(chosen, place))
    own = float(losses[chosen[place]])
    near = losses <= own + problem.threshold(problem.level(own, len(chosen)))
    near[chosen] = False
    others = np.flatnonzero(near)
    nearest = others[np.argsort(losses[others], kind="stable")][:_MOST_ALIKE]
    return np.array([chosen[place], *nearest], dtype=np.int64)


def _hold_extremes(problem: _Problem, chosen: Sequence[int], n_fixed: int) -> tuple[list[int], list[Numbers]]:
    """Among rows that the span can't tell apart take those whose cone holds the data best.

    Returns them, and for each the rows that neither span nor cone tells from it, itself first.
    """
    chosen, groups = list(chosen), [np.zeros(0, dtype=np.int64)] * len(chosen)
    for _ in range(_SWEEPS):
        before = list(chosen)
        for place, row in enumerate(before):
            groups[place] = _alternatives(problem, chosen, place)
            if len(groups[place]) > 1:
                groups[place] = _cover(problem, _without(chosen, place), groups[place])
            chosen[place] = row if place < n_fixed else int(groups[place][0])
        if chosen == before:
            break
    return chosen, groups


def _cover(problem: _Problem, beside: Sequence[int], rows: Numbers) -> Numbers:
    """The rows of a group that hold as much as the best of them, as far as noise lets tell; the first stays first."""
    cones = [problem.atoms[[*beside, int(row)]] for row in rows]
    outside = np.array([_outside(problem.extremes, cone) for cone in cones])
    enough = outside.min() * (1.0 + _GAIN) + problem.scatter + _IN_SPAN * float((problem.extremes**2).sum())
    if outside[0] <= enough:
        return rows[outside <= enough]
    best = int(outside.argmin())
    return np.array([rows[best], *rows[(outside <= enough) & (rows != rows[best])]], dtype=np.int64)


def _outside(extremes: Floats, cone: Floats) -> float:
    """Energy of the extreme rows outside the cone of some rows."""
    return float(((extremes - nonnegative_coefficients(extremes, cone) @ cone) ** 2).sum())


def library_anchors(
    rows: Rows, library: Rows, n_anchors: int | None, settings: Settings, run: Run, known: Known | None = None
) -> AnchorResult:
    """Name the rows of a library that the data are mixtures of.

    The divide step finds the subspace that holds the data, and extreme rows of it; the driver takes the rows of the
    library whose span comes nearest to the subspace, and among those that it can't tell apart the ones whose cone holds
    the extreme rows.
    library: few rows, which the driver holds; n_anchors: how many; as many as the data speak for if None.
    Raises InvalidParameterError: the library is too large, or has fewer rows than are to be named.
    """
    _check(rows, library, n_anchors)
    atoms = fetch_known(library, None, run)
    subspaces = look(rows, run, nonnegative=False, n_anchors=n_anchors, level=False)
    wanted = max(spectral_counts(subspaces, rows)) if n_anchors is None else n_anchors
    dims = min(wanted + 1, rows.n_rows, rows.n_features)  # a constant that is mixed in as well takes one
    voted, _ = vote(rows, subspaces, dims, settings, run)
    return step(run, "anchors", _name, voted, atoms, n_anchors, known)


def _check(rows: Rows, library: Rows, n_anchors: int | None) -> None:
    same_space(rows, library)
    if library.n_rows * library.n_features > _MOST_ENTRIES:
        msg = (
            f"Y has {library.n_rows:,} rows of {library.n_features:,} features: too many for a library of known rows, "
            "which is held in memory; use method='paper', which takes any number"
        )
        raise InvalidParameterError(msg)
    if n_anchors is not None and n_anchors > library.n_rows:
        msg = f"n_anchors={n_anchors} exceeds the {library.n_rows} rows of Y; use at most {library.n_rows}"
        raise InvalidParameterError(msg)


def _name(voted: Voted, library: Floats, n_anchors: int | None, known: Known | None) -> AnchorResult:
    """The driver's part: choose among the library's rows, and certify."""
    numbers, fixed = np.arange(len(library)), 0
    if known is not None:
        others, fixed = numbers[~np.isin(numbers, known.numbers)], len(known.rows)
        numbers, library = np.concatenate([known.numbers, others]), np.vstack([known.rows, library[others]])
    sub = voted.plan.sub
    weights = sub.feature_weights
    named = name_rows(
        _signal(voted, n_anchors), library * weights, weights, n_anchors, n_fixed=fixed, most=1 + sub.rank
    )
    result = _certify(voted, named, numbers, library[named.indices])
    if named.unexplained > _UNEXPLAINED and not named.is_complete:
        warn(
            f"{named.unexplained:.1%} of the spread of X lies outside the span of the rows of Y that explain most: Y "
            "seems to lack a row; add it, ask for more anchors, or look at find_anchors(X, n) without Y",
            IncompleteLibraryWarning,
        )
    return result


def _signal(voted: Voted, n_anchors: int | None) -> Signal:
    """What the data span, in weighted features: their mean, and the directions that stand out from the noise."""
    sub, places = voted.plan.sub, voted.found.votes.places
    centre = sub.mean * sub.feature_weights
    spanned = np.vstack([centre, sub.basis.T * sub.scales[:, None]])
    noise, per_row = _noise(voted)
    clear = sub.spectrum[: len(sub.scales)] > _edge(voted) * noise[1:] * voted.n_sampled
    clear = np.concatenate([[True], clear & (n_anchors != 1)])  # rows of one material differ by noise alone
    some = places[:: -(-len(places) // _EXTREMES)]
    return Signal(spanned[clear], noise[clear], centre + feature_offsets(some, voted.plan.frame), per_row * some.size)


def _noise(voted: Voted) -> tuple[Floats, float]:
    """Variance of an entry of the mean and of each direction, as noisy as the rows that they come from, and of a row.

    Rows of different noise count by how much they shape a direction.
    """
    sub, view = voted.plan.sub, voted.view
    p, r = sub.basis.shape
    per_row = sub.noise
    if len(sub.spectrum) == p:  # no directions are left over that the noise was measured on
        others = sub.spectrum[r:][sub.spectrum[r:] > _ROUNDING * sub.spectrum[0]]
        per_row = float(others.mean()) if len(others) else 0.0
    centred = view.scaled - sub.mean
    weights = huber_weights(centred, view.energy) ** 2
    centred *= sub.feature_weights
    inside = centred @ sub.basis
    outside = weights * np.maximum((centred**2).sum(axis=1) - (inside**2).sum(axis=1), 0.0)
    shares = weights[:, None] * np.hstack([np.ones((len(inside), 1)), inside]) ** 2
    relative = (outside @ shares) / np.maximum(outside.mean() * shares.sum(axis=0), 1e-300)
    rounding = _ROUNDING * float((sub.scales**2).sum() + ((sub.mean * sub.feature_weights) ** 2).sum())
    return np.maximum(per_row * relative, rounding) / voted.n_sampled, per_row


def _edge(voted: Voted) -> float:
    """Variance that noise reaches in the directions where it is greatest, as a multiple of its own."""
    p, r = voted.plan.sub.basis.shape
    unsure = 1.0 + 2.0 / np.sqrt(max(p - r, 1))  # the noise is measured on few directions
    return float(unsure * (1.0 + np.sqrt(p / voted.n_sampled)) ** 2)


def _certify(voted: Voted, named: Named, numbers: Numbers, rows: Floats) -> AnchorResult:
    plan, found, view = voted.plan, voted.found, voted.view
    directions, s = plan.planes.regenerate(), plan.planes.count
    reach = np.vstack([np.ones((int(named.offset), rows.shape[1])), rows])
    scaled, usable = ratios(reach, view.reading.axis)
    places = np.where(usable[:, None], coordinates(scaled, plan.frame), 0.0)
    signed = np.concatenate([directions[:s], -directions[:s]])  # of the subspace alone: known rows hold no noise
    short = votes.shortfalls(places, signed, found.votes.heights.ravel(), plan.rounding)
    curve = votes.coverage_curve(short)[int(named.offset) :]
    heights = places[int(named.offset) :] @ directions[:s].T
    high, low = heights.argmax(axis=0), heights.argmin(axis=0)
    ends = np.concatenate([high, low[low != high]])  # a row has one vote a plane
    own, indices = np.bincount(ends, minlength=len(rows)), numbers[named.indices]
    order = np.argsort(indices, kind="stable")
    return certified(
        indices,
        (indices[order], own[order]),
        s,
        own=own,
        curve=curve,
        census=found.census,
        sample=judges(view.raw),
        rows=rows,
        rare_rows=voted.rare,
        groups=tuple(numbers[group] for group in named.groups),
        offset=named.offset,
        unexplained=named.unexplained,
    )

"""Which rows of a library span the data: MUSIC's ranking, and a likelihood that is searched by swaps.

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

from dask_dca.geometry.nnls import nonnegative_coefficients
from dask_dca.geometry.planes import binary_scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers


_SWEEPS: Final = 20
_GAIN: Final = 1e-9  # of the loss, below which a swap is rounding
_IN_SPAN: Final = 1e-12  # of its energy outside the others: a row that they span
_CHANCE: Final = (1.3, 3.0)  # times the expected energy, and times its standard deviation: noise leaves no more
_DOUBT: Final = 2.0  # times the greatest gain that noise makes among all rows of the library
_MOST_ALIKE: Final = 256  # rows of a group
_SPARE: Final = 3  # rows that are tried beyond the rank of the data, where their number is to be found


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

"""Robust MCH(X, Y): which rows of a library of known rows the data are mixtures of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.anchoring.literal import same_space
from dask_dca.anchoring.preprocess import look, spectral_counts
from dask_dca.anchoring.result import certified
from dask_dca.anchoring.robust import fetch_known, vote
from dask_dca.engine.passes import step
from dask_dca.errors import IncompleteLibraryWarning, InvalidParameterError, warn
from dask_dca.geometry import votes
from dask_dca.geometry.coordinates import coordinates, features, ratios
from dask_dca.geometry.library import Named, Signal, name_rows
from dask_dca.geometry.moments import huber_weights

if TYPE_CHECKING:
    from dask_dca.anchoring.parameters import Settings
    from dask_dca.anchoring.result import AnchorResult
    from dask_dca.anchoring.robust import Known, Voted
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers


_MOST_ENTRIES: Final = 2**25  # of a library, which the driver holds
_EXTREMES: Final = 64  # extreme rows that a cone should hold, at most
_ROUNDING: Final = 2.0**-34  # of the energy, as noise at least
_UNEXPLAINED: Final = 0.01  # of the data's spread: more tells that the library lacks a row, if it is not chance


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
    subspaces = look(rows, run, nonnegative=False, n_anchors=n_anchors)
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
    return Signal(spanned[clear], noise[clear], centre + features(some, voted.plan.frame), per_row * some.size)


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
        sample=view.sample(),
        rows=rows,
        rare_rows=voted.rare,
        groups=tuple(numbers[group] for group in named.groups),
        offset=named.offset,
        unexplained=named.unexplained,
    )

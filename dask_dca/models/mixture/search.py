"""The search on the sample: two starts, two kinds of covariance, moves; whatever has the greatest density left out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.mixture.em import WeightedRows, improve, mixture_of_labels
from dask_dca.models.mixture.family import Shrinkage, as_full
from dask_dca.models.mixture.leave_one_out import left_out_densities, tune_common, tune_own, tune_tails
from dask_dca.models.mixture.moves import split_and_merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_dca.geometry.arrays import Floats, Labels
    from dask_dca.models.mixture.family import Mixture


_COMMON_PASSES: Final = (20, 1e-4)  # of one full covariance for all, before components have their own
_FIRST_PASSES: Final = 10
_FIRST_TUNED: Final = {"diag": (5,), "full": (0, 5)}  # before which passes pulls are chosen: at first all look alike
_LAST_PASSES: Final = (30, (0, 10), 1e-5)
_TIE_STARTS: Final = 2.0  # standard errors within which the earlier start is kept,
_TIE_KINDS: Final = 1.0  # and the simpler kind
_HOPELESS: Final = (40.0, 3.0)  # standard errors behind, before any moves, from which either kind is given up
_FIRST_PULL: Final = 4.0
_FIRST_DEGREES: Final = 8.0  # of freedom, of heavy tails
_HEAVY: Final = 4.0  # standard errors ahead from which heavy tails are taken
_HEAVY_ROWS: Final = 20  # a component that tell how heavy


@dataclass(frozen=True)
class _Kind:
    """A part of the family: what is chosen in it by density, and what is fixed."""

    form: str  # "diag" or "full"
    targets: tuple[str, ...]
    pull: float | None = None  # None: chosen
    common_pull: float | None = None


_KINDS: Final = {
    "diag": _Kind("diag", ("scaled", "common")),
    "full": _Kind("full", ("scaled", "diagonal", "common")),
    "tied": _Kind("full", ("common",), np.inf),
    "spherical": _Kind("diag", ("scaled",), np.inf, np.inf),
    "tied-spherical": _Kind("diag", ("common",), np.inf, np.inf),
}


@dataclass(frozen=True)
class Fitted:
    """A mixture that is good on some rows, and how it was come by.

    mixture: of form "diag" or "full"; left_out (n,): log density of each row, fitted without it; coordinates (p, d):
    those that it started in.
    """

    mixture: Mixture
    shrinkage: Shrinkage
    left_out: Floats
    coordinates: Floats


def fit_rows(
    data: WeightedRows,
    starts: Sequence[tuple[Floats, Labels]],
    k: int,
    covariance_type: str,
    floor: Floats,
    *,
    plain: bool,
    tails: str = "normal",
) -> Fitted:
    """Fit a mixture to rows, from the best of some partitions.

    starts: coordinates, and labels (n,) found in them; covariance_type: a form, or "auto"; floor (p,): least variances;
    plain: no pulls; tails: "normal", "heavy", or "auto".
    """
    names = ("diag", "full") if covariance_type == "auto" else (covariance_type,)
    if data.rows.shape[1] == 1:
        names = names[:1]
    kinds = [_of_floor(_KINDS[name], plain=plain) for name in names]
    begin = partial(_started, data, starts, k, floor=floor, plain=plain)
    first = [begin(kind) for kind in kinds]
    found = _best(data, first)
    if tails == "normal" or (tails == "auto" and len(data) < _HEAVY_ROWS * k):
        return found
    at = [kind.form for kind in kinds].index(found.mixture.covariance_type)
    again = begin(kinds[at], degrees=_FIRST_DEGREES)
    if tails == "auto" and _ahead(data, again[1], first[at][1]) <= _TIE_KINDS:
        return found
    heavy = _best(data, [again if i == at else begin(kind, degrees=_FIRST_DEGREES) for i, kind in enumerate(kinds)])
    return heavy if tails == "heavy" or _ahead(data, heavy, found) > _HEAVY else found


def _best(data: WeightedRows, found: list[tuple[_Kind, Fitted]]) -> Fitted:
    """The best of some kinds, after moves."""
    return choose(data, [_finished(data, *each) for each in _worth_it(data, found)])


def first_fit(
    data: WeightedRows,
    starts: Sequence[tuple[Floats, Labels]],
    k: int,
    covariance_type: str,
    floor: Floats,
    *,
    plain: bool,
) -> Fitted:
    """Fit a mixture of one form to rows by a few passes, without moves."""
    kind = _of_floor(_KINDS[covariance_type], plain=plain)
    return _started(data, starts, k, kind, floor, plain=plain)[1]


def _of_floor(kind: _Kind, *, plain: bool) -> _Kind:
    """The same kind, with pulls that are fixed where there are none."""
    if not plain:
        return kind
    return replace(kind, targets=kind.targets[-1:], pull=kind.pull or 0.0, common_pull=kind.common_pull or 0.0)


def _tune(
    kind: _Kind, data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage
) -> Shrinkage:
    if kind.common_pull is None:
        shrinkage = tune_common(data, responsibilities, mixture, shrinkage)
    if kind.pull is None:
        shrinkage = tune_own(data, responsibilities, mixture, shrinkage, kind.targets)
    if math.isfinite(shrinkage.degrees):
        shrinkage = tune_tails(data, responsibilities, mixture, shrinkage)
    return shrinkage


def _started(
    data: WeightedRows,
    starts: Sequence[tuple[Floats, Labels]],
    k: int,
    kind: _Kind,
    floor: Floats,
    degrees: float = math.inf,
    *,
    plain: bool,
) -> tuple[_Kind, Fitted]:
    """The best start of a kind, after some passes."""
    pulls = (_FIRST_PULL if kind.pull is None else kind.pull, 1.0 if kind.common_pull is None else kind.common_pull)
    first = Shrinkage(floor, *pulls, target=kind.targets[0], plain=plain, degrees=degrees)
    found = []
    for coordinates, labels in starts:
        form = "tied" if kind.form == "full" and not plain else kind.form
        mixture = mixture_of_labels(data, labels, k, form, first)
        if form == "tied":  # one covariance for all, before components have their own
            passes, tol = _COMMON_PASSES
            mixture = as_full(improve(data, mixture, first, passes, tol=tol)[0])
        tune_at = _FIRST_TUNED[kind.form]
        mixture, shrinkage = improve(data, mixture, first, _FIRST_PASSES, tune=partial(_tune, kind), tune_at=tune_at)
        left_out = left_out_densities(data, mixture, shrinkage)
        found.append(Fitted(mixture, shrinkage, left_out, coordinates))
    return kind, choose(data, found, _TIE_STARTS)


def _worth_it(data: WeightedRows, found: list[tuple[_Kind, Fitted]]) -> list[tuple[_Kind, Fitted]]:
    """The kinds of which either may win yet: moves cost most, those of full covariances above all."""
    if len(found) == 1:
        return found
    ahead, full = _ahead(data, found[0][1], found[1][1]), found[1][1].shrinkage
    if ahead > _HOPELESS[1] or (full.target == "diagonal" and np.isinf(full.pull)):  # which is the other kind
        return found[:1]
    return found[1:] if ahead < -_HOPELESS[0] else found


def _finished(data: WeightedRows, kind: _Kind, start: Fitted) -> Fitted:
    """Moves, and a last run of passes."""
    mixture = split_and_merge(data, start.mixture, start.shrinkage)
    passes, tune_at, tol = _LAST_PASSES
    mixture, shrinkage = improve(
        data, mixture, start.shrinkage, passes, tune=partial(_tune, kind), tune_at=tune_at, tol=tol
    )
    return Fitted(mixture, shrinkage, left_out_densities(data, mixture, shrinkage), start.coordinates)


def choose(data: WeightedRows, found: Sequence[Fitted], ties: float = _TIE_KINDS) -> Fitted:
    """Choose by the density of rows left out.

    found: the simpler ones first; ties: in standard errors. Returns the first within so many of the best.
    """
    best = max(found, key=lambda one: float(data.counts @ one.left_out))
    return next(one for one in found if one is best or _ahead(data, best, one) <= ties)


def _ahead(data: WeightedRows, one: Fitted, other: Fitted) -> float:
    """By how many standard errors of paired rows the density of one is greater."""
    return _errors_ahead(data, one.left_out - other.left_out)


def _errors_ahead(data: WeightedRows, gain: Floats) -> float:
    """Mean gain of a row, in standard errors."""
    mean = float(data.counts @ gain) / data.n_rows
    error = math.sqrt(float(data.counts @ (gain - mean) ** 2) / data.n_rows / len(data))
    return mean / error if error > 0.0 else math.copysign(math.inf, mean) if mean else 0.0

"""The search on the sample: two starts, two kinds of covariance, moves; chosen by leave-one-out density."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from dask_dca.geometry.arrays import Floats, Labels
from dask_dca.models.mixture.em import WeightedRows, mixture_of_labels, run_em
from dask_dca.models.mixture.family import Mixture, Shrinkage, as_full
from dask_dca.models.mixture.leave_one_out import leave_one_out_densities, tune_common_pull, tune_degrees, tune_pull
from dask_dca.models.mixture.moves import split_and_merge

_TIED_PASSES: Final = 20  # maximum number of passes with one full covariance, before components have their own
_TIED_TOL: Final = 1e-4  # tolerance of the passes with one full covariance
_START_PASSES: Final = 10  # number of passes from each start
_START_TUNED: Final = {"diag": (5,), "full": (0, 5)}  # passes from a start before which pulls are chosen, by form
_FINAL_PASSES: Final = 30  # maximum number of passes after the moves
_FINAL_TUNED: Final = (0, 10)  # passes after the moves before which pulls are chosen
_FINAL_TOL: Final = 1e-5  # tolerance of the passes after the moves
_START_TIE: Final = 2.0  # standard errors within which the earlier start is kept
_KIND_TIE: Final = 1.0  # standard errors within which the simpler kind is kept
_MAX_DIAG_LAG: Final = 40.0  # standard errors behind, before moves, beyond which the diagonal kind is dropped
_MAX_FULL_LAG: Final = 3.0  # standard errors behind, before moves, beyond which the full kind is dropped
_START_PULL: Final = 4.0  # pull of covariances to their targets before it is chosen
# pull to one variance before it is chosen: none of diagonal forms, whose features may have very different variances
_START_COMMON_PULL: Final = {"diag": 0.0, "full": 1.0}
_START_DEGREES: Final = 8.0  # degrees of freedom of heavy tails before they are chosen
_HEAVY_LEAD: Final = 4.0  # standard errors ahead beyond which tails="auto" takes heavy tails
_MIN_TAIL_ROWS: Final = 20  # minimum number of rows for each component with which tails="auto" tries heavy tails


@dataclass(frozen=True)
class _Kind:
    """A subfamily of covariances: the pulls that are fixed; those that are None are chosen by density."""

    form: str  # "diag" or "full"
    targets: tuple[str, ...]
    pull: float | None = None
    common_pull: float | None = None


_KINDS: Final = {
    "diag": _Kind("diag", ("scaled", "common")),
    "full": _Kind("full", ("scaled", "diagonal", "common")),
    "tied": _Kind("full", ("common",), np.inf),
    "spherical": _Kind("diag", ("scaled",), np.inf, np.inf),
    "tied-spherical": _Kind("diag", ("common",), np.inf, np.inf),
}


@dataclass(frozen=True)
class ScoredMixture:
    """A mixture fitted to rows, with its leave-one-out score.

    mixture: of form "diag" or "full"; left_out (n,): log density of each row under the mixture fitted without it;
    coordinates (p, d): of the start.
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
    moves: bool = True,
) -> ScoredMixture:
    """Fit a mixture to rows, from the best of some partitions.

    starts: coordinates, and labels (n,) found in them; covariance_type: a form, or "auto"; floor (p,): added to
    variances; plain: nothing is shrunk; tails: "normal", "heavy", or "auto"; moves: whether components are split and
    merged, else there are a few passes with one form.
    """
    names = ("diag", "full") if covariance_type == "auto" else (covariance_type,)
    if data.rows.shape[1] == 1:  # where "diag" and "full" are the same
        names = names[:1]
    kinds = [_fixed_if_plain(_KINDS[name], plain=plain) for name in names]
    start = partial(_best_start, data, starts, k, floor=floor, plain=plain)
    normal_starts = [start(kind) for kind in kinds]
    if not moves:
        return normal_starts[0][1]
    normal = _best_after_moves(data, normal_starts)
    if tails == "normal" or (tails == "auto" and len(data) < _MIN_TAIL_ROWS * k):
        return normal
    # heavy tails are tried with the kind that won first; all of it is done only if they are ahead there
    won = [kind.form for kind in kinds].index(normal.mixture.covariance_type)
    heavy_start = start(kinds[won], degrees=_START_DEGREES)
    if tails == "auto" and _lead(data, heavy_start[1], normal_starts[won][1]) <= _KIND_TIE:
        return normal
    heavy_starts = [heavy_start if i == won else start(kind, degrees=_START_DEGREES) for i, kind in enumerate(kinds)]
    heavy = _best_after_moves(data, heavy_starts)
    return heavy if tails == "heavy" or _lead(data, heavy, normal) > _HEAVY_LEAD else normal


def _best_after_moves(data: WeightedRows, found: list[tuple[_Kind, ScoredMixture]]) -> ScoredMixture:
    """Improve the starts of one or two kinds by moves, except for hopeless ones, and choose the best."""
    return choose_simplest(data, [_refine_by_moves(data, *each) for each in _drop_hopeless(data, found)])


def _fixed_if_plain(kind: _Kind, *, plain: bool) -> _Kind:
    """The kind itself, or if `plain` without anything to choose: pulls that were not fixed are zero."""
    if not plain:
        return kind
    return replace(kind, targets=kind.targets[-1:], pull=kind.pull or 0.0, common_pull=kind.common_pull or 0.0)


def _tune(
    kind: _Kind, data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage
) -> Shrinkage:
    if kind.common_pull is None:
        shrinkage = tune_common_pull(data, responsibilities, mixture, shrinkage)
    if kind.pull is None:
        shrinkage = tune_pull(data, responsibilities, mixture, shrinkage, kind.targets)
    if math.isfinite(shrinkage.degrees):
        shrinkage = tune_degrees(data, responsibilities, mixture, shrinkage)
    return shrinkage


def _best_start(
    data: WeightedRows,
    starts: Sequence[tuple[Floats, Labels]],
    k: int,
    kind: _Kind,
    floor: Floats,
    degrees: float = math.inf,
    *,
    plain: bool,
) -> tuple[_Kind, ScoredMixture]:
    """Run some passes of a kind from each start, and choose the best."""
    common_pull = _START_COMMON_PULL[kind.form] if kind.common_pull is None else kind.common_pull
    pulls = (_START_PULL if kind.pull is None else kind.pull, common_pull)
    first = Shrinkage(floor, *pulls, target=kind.targets[0], plain=plain, degrees=degrees)
    found = []
    for coordinates, labels in starts:
        form = "tied" if kind.form == "full" and not plain else kind.form
        mixture = mixture_of_labels(data, labels, k, form, first)
        if form == "tied":
            mixture = as_full(run_em(data, mixture, first, _TIED_PASSES, tol=_TIED_TOL)[0])
        tune_at = _START_TUNED[kind.form]
        mixture, shrinkage = run_em(data, mixture, first, _START_PASSES, tune=partial(_tune, kind), tune_at=tune_at)
        left_out = leave_one_out_densities(data, mixture, shrinkage)
        found.append(ScoredMixture(mixture, shrinkage, left_out, coordinates))
    return kind, choose_simplest(data, found, _START_TIE)


def _drop_hopeless(data: WeightedRows, found: list[tuple[_Kind, ScoredMixture]]) -> list[tuple[_Kind, ScoredMixture]]:
    """Drop a kind so far behind the other that moves, which cost most, would not let it win."""
    if len(found) == 1:
        return found
    lead, full = _lead(data, found[0][1], found[1][1]), found[1][1].shrinkage
    diagonal = full.target == "diagonal" and np.isinf(full.pull)  # "full" was shrunk to the diagonal kind
    if lead > _MAX_FULL_LAG or diagonal:
        return found[:1]
    return found[1:] if lead < -_MAX_DIAG_LAG else found


def _refine_by_moves(data: WeightedRows, kind: _Kind, start: ScoredMixture) -> ScoredMixture:
    """Improve a start by moves, and by a last run of passes."""
    mixture, tune = split_and_merge(data, start.mixture, start.shrinkage), partial(_tune, kind)
    mixture, shrinkage = run_em(
        data, mixture, start.shrinkage, _FINAL_PASSES, tune=tune, tune_at=_FINAL_TUNED, tol=_FINAL_TOL
    )
    return ScoredMixture(mixture, shrinkage, leave_one_out_densities(data, mixture, shrinkage), start.coordinates)


def choose_simplest(data: WeightedRows, found: Sequence[ScoredMixture], tie: float = _KIND_TIE) -> ScoredMixture:
    """Choose the first mixture whose leave-one-out density is within `tie` standard errors of the best one's.

    found: the simpler ones first.
    """
    best = max(found, key=lambda one: float(data.counts @ one.left_out))
    return next(one for one in found if one is best or _lead(data, best, one) <= tie)


def _lead(data: WeightedRows, one: ScoredMixture, other: ScoredMixture) -> float:
    """Mean lead of one mixture in leave-one-out log density per row, in standard errors of paired rows."""
    gain = one.left_out - other.left_out
    mean = float(data.counts @ gain) / data.n_rows
    error = math.sqrt(float(data.counts @ (gain - mean) ** 2) / data.n_rows / len(data))
    return mean / error if error > 0.0 else math.copysign(math.inf, mean) if mean else 0.0

"""The recipe of a basis that is not rows: components from anchors and a sample, then passes over all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.anchoring.completion import fill_blocks, with_zeros_for_empty_rows
from dask_dca.anchoring.parameters import check_integer, check_number, check_option
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sampling import call, hold_pass, hold_rows
from dask_dca.engine.types import add_parts, stack_parts
from dask_dca.engine.weights import draw_rows
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.exact import piecewise_matmul, power_of_two
from dask_dca.models.nmf.free import (
    NO_PENALTY,
    GramProblem,
    Penalty,
    coefficients_of_counts,
    component_step,
    factorize_counts,
    factorize_sample,
    scaled_step,
)
from dask_dca.models.nmf.passes import (
    Basis,
    counts_look_block,
    imputed_block,
    look_block,
    take_counts_block,
    working_unit,
)
from dask_dca.models.nmf.rays import find_rays, find_subspace, likely_rays

if TYPE_CHECKING:
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.sampling import Held
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.nmf.passes import BasisSums, CountsSeen, Filling
    from dask_dca.models.nmf.rays import Rays


_BASES: Final = ("rows", "rays", "free", "auto")
_CRITERIA: Final = ("spectrum", "holdout")
_LOSSES: Final = ("frobenius", "kullback-leibler")
_OF_FREE: Final = {"beta_loss": _LOSSES[0], "alpha_W": 0.0, "alpha_H": 0.0, "l1_ratio": 0.0, "max_iter": 1}  # defaults


@dataclass(frozen=True)
class BasisSettings:
    """Checked parameters of a basis."""

    basis: str
    max_iter: int
    beta_loss: str
    coefficient_alpha: float
    component_alpha: float
    l1_ratio: float

    def of_coefficients(self, n_features: int, unit: int) -> Penalty:
        """Return the penalty of W, as scikit-learn scales it: by the number of features.

        unit: binary exponent of the unit that the rows and H are in; the error is in its square.
        """
        if self.coefficient_alpha == 0.0:
            return NO_PENALTY
        alpha = float(np.ldexp(self.coefficient_alpha * n_features, -2 * unit))
        return Penalty(alpha * self.l1_ratio, alpha * (1.0 - self.l1_ratio))

    def of_components(self, n_rows: float, unit: int) -> Penalty:
        """Return the penalty of H, scaled by the number of rows."""
        if self.component_alpha == 0.0:
            return NO_PENALTY
        alpha = self.component_alpha * n_rows
        return Penalty(float(np.ldexp(alpha * self.l1_ratio, -unit)), alpha * (1.0 - self.l1_ratio))


def check_basis(model: Any) -> BasisSettings:
    """Check the parameters of a model's basis.

    Raises InvalidParameterError: one is unknown or out of range, or the basis has no use for it.
    """
    basis = check_option("basis", model.basis, _BASES)
    check_option("criterion", model.criterion, _CRITERIA)
    loss = check_option("beta_loss", model.beta_loss, _LOSSES)
    max_iter = check_integer("max_iter", model.max_iter, 0)
    alpha_W = check_number("alpha_W", model.alpha_W)
    same = isinstance(model.alpha_H, str) and model.alpha_H == "same"
    alpha_H = alpha_W if same else check_number("alpha_H", model.alpha_H)
    ratio = check_number("l1_ratio", model.l1_ratio, 0.0, 1.0)
    moving = {"beta_loss": loss, "alpha_W": alpha_W, "alpha_H": alpha_H, "l1_ratio": ratio, "max_iter": max_iter}
    given = [f"{name}={value!r}" for name, value in moving.items() if value != _OF_FREE[name]]
    if basis != "free" and given:
        msg = f"{given[0]} is for a basis that is free to move, and basis={basis!r} is not: use basis='free'"
        raise InvalidParameterError(msg)
    if basis != "rows" and model.method == "paper":
        msg = f"basis={basis!r} begins with the default method's anchors; with method='paper' use basis='rows'"
        raise InvalidParameterError(msg)
    if model.known is not None and model.method != "robust":
        msg = f"known anchors need method='robust'; received method={model.method!r}"
        raise InvalidParameterError(msg)
    return BasisSettings(basis, max_iter, loss, alpha_W, alpha_H, ratio)


_WHOLE: Final = 2**22  # entries of data that are their own sample
_PLACES: Final = 64  # runs of rows that a sample is taken in
_COUNT_ROWS: Final = 2**12  # of counts: so many are their own sample
_ROWS: Final = (2**11, 2**7)  # of a sample: at least, a component
_SETTLED: Final = (4e-3, 1e-4)  # share of the loss that ten steps lower it by at the end: on a sample, on all rows
_CONVERGED: Final = 1e-3  # share of what the start left that a pass lowers the loss by at the end
_STEPS: Final = 2.0**-19  # of an entry's or coefficient's greatest value, in exact sums
_LEAST: Final = 2.0**-40  # of an entry's greatest value


@dataclass(frozen=True)
class BasisFit:
    """Components (k, p), the rows nearest to them (k,), the error, and how the passes went."""

    components: Floats
    nearest: Numbers
    error: float
    n_iter: int
    converged: bool


def free_basis(rows: Rows, anchors: Floats, n_components: int, settings: BasisSettings, run: Run) -> BasisFit:
    """Find components that are free to move: on a sample until the loss settles, then by passes over all rows.

    anchors (m, p): where to start; n_components: how many components.
    """
    unit, n = working_unit(anchors), rows.total_weight
    start = np.ldexp(anchors.astype(np.float64), -unit)
    sample, n_sampled = _sample(rows, unit, n_components, run)
    of_W, of_H = settings.of_coefficients(rows.n_features, unit), settings.of_components(n, unit)
    penalties, whole = (of_W, settings.of_components(n_sampled, unit)), n_sampled == rows.n_copies
    found = call(run, "basis", factorize_sample, sample, start, n_components, penalties, _SETTLED[whole], whole)
    H, n_iter, converged = found.components, 0, found.settled
    units = _units(rows, sample, H, of_W, run)
    while True:
        seen, fall, hidden = _look_at(rows, H, unit, of_W, units, run), 0.0, _hidden(rows, H, units)
        if float(seen.left.value()) <= hidden:  # a step could only follow what the sums are rounded to
            converged = True
        elif n_iter < settings.max_iter:
            moved = component_step(H, seen.gram.value(), seen.products.value(), of_H)
            fall = seen.fall(H, moved)
            gain = 0.5 * fall + of_H.of(H) - of_H.of(moved)
            H, n_iter, converged = moved, n_iter + 1, gain <= _CONVERGED * found.first * n / n_sampled
        if converged or n_iter >= settings.max_iter:
            break
    error = _error(seen, fall, hidden, unit)
    return BasisFit(np.ldexp(H, unit), seen.nearest.found, error, n_iter, converged)


def find_ray_basis(rows: Rows, anchors: Floats, extremes: Floats, run: Run) -> Rays | None:
    """Find the rays of the smallest cone around extreme rows, or of a likelier one; none if anchors are no simplex.

    More anchors than features are none. anchors (k, p); extremes (m, p): rows that are extreme on some plane.
    """
    if not 2 <= len(anchors) <= rows.n_features:
        return None
    unit, k = working_unit(anchors), len(anchors)
    sample, _ = _sample(rows, unit, k, run)
    far, near = (np.ldexp(part.astype(np.float64), -unit) for part in (extremes, anchors))
    level = call(run, "subspace", find_subspace, sample, near)
    found = find_rays(far, near, level)
    if found is None:
        return None
    likely: Rays = call(run, "rays", likely_rays, sample, found, level)
    return replace(likely, rays=np.ldexp(likely.rays, unit))


def as_basis(rows: Rows, components: Floats, run: Run, *, converged: bool) -> BasisFit:
    """Look at all rows with given components: the rows nearest to them, and the error."""
    unit = working_unit(components)
    H = np.ldexp(components.astype(np.float64), -unit)
    sample, _ = _sample(rows, unit, len(H), run)
    seen = _look_at(rows, H, unit, NO_PENALTY, _units(rows, sample, H, NO_PENALTY, run), run)
    return BasisFit(components, seen.nearest.found, _error(seen, 0.0, 0.0, unit), 1, converged)


def counts_basis(rows: Rows, anchors: Floats, settings: BasisSettings, run: Run) -> BasisFit:
    """Find components of counts by their divergence: on a sample until it settles, then by passes over all rows.

    anchors (k, p): where to start.
    """
    n, k = rows.n_copies, len(anchors)
    whole = n <= _COUNT_ROWS or n * rows.n_features <= _WHOLE
    places = (1, n) if whole else (_PLACES, -(-max(_COUNT_ROWS, _ROWS[1] * k) // _PLACES))
    numbers = draw_rows(rows, *places, run)
    source, blocks = (rows, None) if numbers is None else rows.blocks_for(numbers)
    job: Pass[tuple[Any, ...]] = Pass("fetch", take_counts_block, stack_parts)
    sample = hold_pass(source, job, numbers, run, partial(_as_counts, rows.n_features), blocks=blocks)
    n_sampled = n if numbers is None else len(numbers)
    of_W, of_H = settings.of_coefficients(rows.n_features, 0), settings.of_components(rows.total_weight, 0)
    penalties, start = (of_W, settings.of_components(n_sampled, 0)), anchors.astype(np.float64)
    found = call(run, "basis", factorize_counts, sample, start, penalties, _SETTLED[n_sampled == n])
    H, n_iter, converged = found.components, 0, found.settled
    greatest: Floats = call(run, "units", _greatest_of_counts, sample, H, of_W)
    units = _STEPS * power_of_two(greatest * _mean_weight(rows))
    last: Pass[CountsSeen] = Pass("refine", counts_look_block, add_parts, weighted=True)
    while True:
        seen = run_pass(rows, last, (H, of_W, units), run)
        if n_iter == settings.max_iter:
            break
        moved = scaled_step(H, np.ascontiguousarray(seen.products.value().T), seen.heights.value()[:, None], of_H)
        change = float(np.abs(moved - H).sum() / H.sum())
        H, n_iter, converged = moved, n_iter + 1, change <= _CONVERGED
        if converged or n_iter == settings.max_iter:
            break
    return BasisFit(H, seen.nearest.found, float(np.sqrt(2.0 * max(float(seen.left.value()), 0.0))), n_iter, converged)


def _as_counts(n_features: int, found: tuple[Numbers, Numbers, Numbers, Floats]) -> sparse.csr_array:
    """Sparse rows in the order of their numbers."""
    numbers, lengths, columns, values = found
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return sparse.csr_array((values, columns, ends), shape=(len(numbers), n_features))[np.argsort(numbers)]


def _greatest_of_counts(X: Any, H: Floats, penalty: Penalty) -> Floats:
    return np.asarray(coefficients_of_counts(X, H, penalty).max(axis=0))


def _look_at(rows: Rows, H: Floats, unit: int, penalty: Penalty, units: tuple[Floats, Floats], run: Run) -> BasisSums:
    """Solve for the coefficients of all rows, and sum what is needed of them.

    H (k, p): components in the unit; penalty: of coefficients; units: what entries and coefficients are rounded to.
    """
    job: Pass[BasisSums] = Pass("refine", look_block, add_parts, weighted=True)
    return run_pass(rows, job, (Basis(H, unit, penalty), *units), run)


def _hidden(rows: Rows, H: Floats, units: tuple[Floats, Floats]) -> float:
    """Squares that rounding of entries and coefficients to units leaves: a fall to less can't be told from sums."""
    entries, coefficients = units
    each = (entries**2).sum() + (coefficients**2 * (H**2).sum(axis=1)).sum()
    return rows.n_rows * float(each) / 12.0


def _error(seen: BasisSums, fall: float, hidden: float, unit: int) -> float:
    """Norm of what is left after a fall of its square, which is known down to what rounding hides."""
    left = float(seen.left.value())
    return float(np.ldexp(np.sqrt(max(left - fall, min(left, hidden))), unit))


def _sample(rows: Rows, unit: int, n_components: int, run: Run) -> tuple[Held[Floats], int]:
    """Rows in the unit, kept where the data are, and how many: all if they are few, else runs of rows."""
    least, each = _ROWS
    whole = rows.n_copies * rows.n_features <= _WHOLE
    length = -(-max(least, each * n_components) // _PLACES)
    numbers = draw_rows(rows, *((1, rows.n_copies) if whole else (_PLACES, length)), run)
    held = hold_rows(rows, numbers, run, partial(_scaled, unit))
    return held, rows.n_rows if numbers is None else len(numbers)


def _scaled(unit: int, rows: Floats) -> Floats:
    return np.maximum(np.ldexp(rows, -unit), 0.0)


def _units(rows: Rows, sample: Held[Floats], H: Floats, penalty: Penalty, run: Run) -> tuple[Floats, Floats]:
    """What entries (p,) and coefficients (k,) are rounded to, times roots of weights, by the greatest of a sample."""
    entries, coefficients = call(run, "units", _greatest, sample, H, penalty)
    root = np.sqrt(_mean_weight(rows))
    return _STEPS * power_of_two(np.maximum(entries, _LEAST) * root), _STEPS * power_of_two(coefficients * root)


def _mean_weight(rows: Rows) -> float:
    """Weight of a row that stands in sums: one where weights count copies, so that these have the sums of rows."""
    return rows.total_weight / rows.n_copies


def _greatest(X: Floats, H: Floats, penalty: Penalty) -> tuple[Floats, Floats]:
    W = GramProblem.of(penalty.in_gram(H @ H.T)).solve(piecewise_matmul(X, np.ascontiguousarray(H.T)) - penalty.l1)
    return X.max(axis=0), W.max(axis=0)


def filled_rows_of(rows: Rows, state: Filling) -> Rows:
    """Fill the holes of rows, lazily where they are chunked; rows without any entry become zeros."""
    return fill_blocks(rows, partial(with_zeros_for_empty_rows, imputed_block), state)

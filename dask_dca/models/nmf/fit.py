"""The recipe of a basis other than rows: components from anchors and a sample, then passes over all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from scipy import sparse

from dask_dca.anchoring.completion import fill_blocks, with_zeros_for_empty_rows
from dask_dca.anchoring.parameters import check_integer, check_number, check_option
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import Rows
from dask_dca.engine.sampling import Held, call, hold_pass, hold_rows
from dask_dca.engine.types import add_parts, stack_parts
from dask_dca.engine.weights import draw_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import piecewise_matmul, power_of_two
from dask_dca.models.nmf.free import (
    NO_PENALTY,
    GramProblem,
    Penalty,
    coefficients_of_counts,
    factorize_counts,
    factorize_sample,
    scaled_step,
    sweeps,
)
from dask_dca.models.nmf.passes import (
    Basis,
    BasisSums,
    CountsSums,
    Filling,
    basis_sums_block,
    counts_sums_block,
    imputed_block,
    take_counts_block,
    working_unit,
)
from dask_dca.models.nmf.rays import Rays, find_rays, find_rows_level, likely_rays

_BASES: Final = ("rows", "rays", "free", "auto")
_CRITERIA: Final = ("spectrum", "holdout")
_LOSSES: Final = ("frobenius", "kullback-leibler")
# parameters that only a free basis has, with their defaults
_FREE_DEFAULTS: Final = {"beta_loss": _LOSSES[0], "alpha_W": 0.0, "alpha_H": 0.0, "l1_ratio": 0.0, "max_iter": 1}


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
        """Return the penalty of W, scaled by the number of features as in scikit-learn.

        unit: binary exponent of the unit of the rows and of H; the squared error is in units of its square.
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

    Raises InvalidParameterError: one is unknown or out of range, or does not apply to the basis.
    """
    basis = check_option("basis", model.basis, _BASES)
    check_option("criterion", model.criterion, _CRITERIA)
    loss = check_option("beta_loss", model.beta_loss, _LOSSES)
    max_iter = check_integer("max_iter", model.max_iter, 0)
    alpha_W = check_number("alpha_W", model.alpha_W)
    same = isinstance(model.alpha_H, str) and model.alpha_H == "same"
    alpha_H = alpha_W if same else check_number("alpha_H", model.alpha_H)
    ratio = check_number("l1_ratio", model.l1_ratio, 0.0, 1.0)
    free_only = {"beta_loss": loss, "alpha_W": alpha_W, "alpha_H": alpha_H, "l1_ratio": ratio, "max_iter": max_iter}
    given = [f"{name}={value!r}" for name, value in free_only.items() if value != _FREE_DEFAULTS[name]]
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


_MAX_WHOLE_ENTRIES: Final = 2**22  # data with up to this many entries are their own sample
_SAMPLE_RUNS: Final = 64  # number of runs of consecutive rows that a sample is drawn in
_COUNT_SAMPLE_ROWS: Final = 2**12  # minimum number of rows of a sample of counts
_SAMPLE_ROWS: Final = 2**11  # minimum number of rows of a sample
_SAMPLE_ROWS_PER_COMPONENT: Final = 2**7  # minimum number of rows of a sample for each component
_SAMPLE_TOL: Final = 4e-3  # tolerance on a sample: relative decrease of the loss in ten steps
_WHOLE_TOL: Final = 1e-4  # the same tolerance if the sample is all rows
_STEP_SWEEPS: Final = 20  # sweeps over the components between two passes
_PASS_TOL: Final = 1e-3  # tolerance of the passes: decrease of the loss, relative to the first loss
_RELATIVE_UNIT: Final = 2.0**-19  # unit of entries and coefficients in exact sums, relative to their greatest value
_MIN_ENTRY: Final = 2.0**-40  # minimum of a feature's greatest entry, for its unit
_MIN_PEAK_COUNT: Final = 2.0**-30  # minimum of the greatest count, so that small rates are not zero beside it


@dataclass(frozen=True)
class BasisFit:
    """Components (k, p), the rows of least angle to them (k,), the Frobenius error, and how many passes it took."""

    components: Floats
    nearest: Numbers
    error: float
    n_iter: int
    converged: bool


def free_basis(rows: Rows, anchors: Floats, n_components: int, settings: BasisSettings, run: Run) -> BasisFit:
    """Fit a free basis: on a sample until the loss settles, then by passes over all rows.

    anchors (m, p): start of the components, of which there may be more.
    """
    unit, n = working_unit(anchors), rows.total_weight
    start = np.ldexp(anchors.astype(np.float64), -unit)
    sample, n_sampled = _sample(rows, unit, n_components, run)
    of_W, of_H = settings.of_coefficients(rows.n_features, unit), settings.of_components(n, unit)
    penalties, whole = (of_W, settings.of_components(n_sampled, unit)), n_sampled == rows.n_copies
    tol = _WHOLE_TOL if whole else _SAMPLE_TOL
    found = call(run, "basis", factorize_sample, sample, start, n_components, penalties, tol, whole)
    H, n_iter, converged = found.components, 0, found.settled
    units = _units(rows, sample, H, of_W, run)
    while True:
        seen, fall, rounding = _pass_over(rows, H, unit, of_W, units, run), 0.0, _rounding_error(rows, H, units)
        if float(seen.left.value()) <= rounding:  # a step would fit the rounding errors of the sums
            n_iter, converged = max(n_iter, min(1, settings.max_iter)), True
        elif n_iter < settings.max_iter:
            moved = sweeps(H, seen.gram.value(), seen.products.value(), _STEP_SWEEPS, of_H)
            fall = seen.fall(H, moved)
            gain = 0.5 * fall + of_H.of(H) - of_H.of(moved)
            H, n_iter, converged = moved, n_iter + 1, gain <= _PASS_TOL * found.first_loss * n / n_sampled
        if converged or n_iter >= settings.max_iter:
            break
    error = _error(seen, fall, rounding, unit)
    return BasisFit(np.ldexp(H, unit), seen.nearest.found, error, n_iter, converged)


def find_ray_basis(rows: Rows, anchors: Floats, extremes: Floats, run: Run) -> Rays | None:
    """Find the rays of the smallest cone around the extreme rows, or of a more likely one if no rows are pure.

    anchors (k, p); extremes (m, p): rows that are extreme on some plane. Returns None if the anchors don't span a
    simplex, as with more anchors than features.
    """
    if not 2 <= len(anchors) <= rows.n_features:
        return None
    unit, k = working_unit(anchors), len(anchors)
    sample, _ = _sample(rows, unit, k, run)
    far, near = (np.ldexp(part.astype(np.float64), -unit) for part in (extremes, anchors))
    level = call(run, "subspace", find_rows_level, sample, near)
    found = find_rays(far, near, level)
    if found is None:
        return None
    likely: Rays = call(run, "rays", likely_rays, sample, found, level)
    return replace(likely, rays=np.ldexp(likely.rays, unit))


def as_basis(rows: Rows, components: Floats, run: Run, *, converged: bool) -> BasisFit:
    """Evaluate given components on all rows: the rows of least angle to them, and the error."""
    unit = working_unit(components)
    H = np.ldexp(components.astype(np.float64), -unit)
    sample, _ = _sample(rows, unit, len(H), run)
    seen = _pass_over(rows, H, unit, NO_PENALTY, _units(rows, sample, H, NO_PENALTY, run), run)
    return BasisFit(components, seen.nearest.found, _error(seen, 0.0, 0.0, unit), 1, converged)


def counts_basis(rows: Rows, anchors: Floats, settings: BasisSettings, run: Run) -> BasisFit:
    """Fit a free basis to counts by divergence: on a sample until it settles, then by passes over all rows.

    anchors (k, p): start of the components.
    """
    n, k = rows.n_copies, len(anchors)
    whole = n <= _COUNT_SAMPLE_ROWS or n * rows.n_features <= _MAX_WHOLE_ENTRIES
    n_rows = max(_COUNT_SAMPLE_ROWS, _SAMPLE_ROWS_PER_COMPONENT * k)
    numbers = draw_rows(rows, *((1, n) if whole else (_SAMPLE_RUNS, -(-n_rows // _SAMPLE_RUNS))), run)
    source, blocks = (rows, None) if numbers is None else rows.blocks_for(numbers)
    job: Pass[tuple[Any, ...]] = Pass("fetch", take_counts_block, stack_parts)
    sample = hold_pass(source, job, numbers, run, partial(_as_counts, rows.n_features), blocks=blocks)
    n_sampled = n if numbers is None else len(numbers)
    of_W, of_H = settings.of_coefficients(rows.n_features, 0), settings.of_components(rows.total_weight, 0)
    penalties, start = (of_W, settings.of_components(n_sampled, 0)), anchors.astype(np.float64)
    tol = _WHOLE_TOL if n_sampled == n else _SAMPLE_TOL
    found = call(run, "basis", factorize_counts, sample, start, penalties, tol)
    H, n_iter, converged = found.components, 0, found.settled
    greatest: Floats = call(run, "units", _max_count_coefficients, sample, H, of_W)
    units = _RELATIVE_UNIT * power_of_two(greatest * _mean_weight(rows))
    last: Pass[CountsSums] = Pass("refine", counts_sums_block, add_parts, weighted=True)
    fall = 0.0
    while True:
        seen = run_pass(rows, last, (H, of_W, units), run)
        if n_iter == settings.max_iter:
            break
        moved = scaled_step(H, np.ascontiguousarray(seen.products.value().T), seen.heights.value()[:, None], of_H)
        change, fall = float(np.abs(moved - H).sum() / H.sum()), seen.fall(H, moved)
        H, n_iter, converged = moved, n_iter + 1, change <= _PASS_TOL
        if converged or n_iter == settings.max_iter:
            break
    left = max(float(seen.left.value()) - fall, 0.0)
    return BasisFit(H, seen.nearest.found, float(np.sqrt(2.0 * left)), n_iter, converged)


def _as_counts(n_features: int, found: tuple[Numbers, Numbers, Numbers, Floats]) -> sparse.csr_array:
    """Assemble what `take_counts_block` returned to sparse rows, in the order of their numbers.

    Raises InvalidInputError: the greatest count is too small.
    """
    numbers, lengths, columns, values = found
    if 0.0 < (most := float(values.max(initial=0.0))) < _MIN_PEAK_COUNT:
        msg = (
            f"the greatest entry of X is {most:.3g}, and beta_loss='kullback-leibler' is for counts; "
            f"multiply X first, for example X = X / {most:.0e}"
        )
        raise InvalidInputError(msg)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return sparse.csr_array((values, columns, ends), shape=(len(numbers), n_features))[np.argsort(numbers)]


def _max_count_coefficients(X: Any, H: Floats, penalty: Penalty) -> Floats:
    return np.asarray(coefficients_of_counts(X, H, penalty).max(axis=0))


def _pass_over(rows: Rows, H: Floats, unit: int, penalty: Penalty, units: tuple[Floats, Floats], run: Run) -> BasisSums:
    """Solve for the coefficients of all rows, and sum what the next components depend on.

    H (k, p): components in the unit; penalty: of coefficients; units: of entries and of coefficients in exact sums.
    """
    job: Pass[BasisSums] = Pass("refine", basis_sums_block, add_parts, weighted=True)
    return run_pass(rows, job, (Basis(H, unit, penalty), *units), run)


def _rounding_error(rows: Rows, H: Floats, units: tuple[Floats, Floats]) -> float:
    """Squared error that rounding of entries and coefficients causes: a smaller residual is not resolved."""
    entries, coefficients = units
    each = (entries**2).sum() + (coefficients**2 * (H**2).sum(axis=1)).sum()
    return rows.n_rows * float(each) / 12.0


def _error(seen: BasisSums, fall: float, rounding: float, unit: int) -> float:
    """Norm of the residual after its square fell, but no less than rounding resolves."""
    left = float(seen.left.value())
    return float(np.ldexp(np.sqrt(max(left - fall, min(left, rounding))), unit))


def _sample(rows: Rows, unit: int, n_components: int, run: Run) -> tuple[Held[Floats], int]:
    """Hold a sample of rows, in the unit, on a worker, and count them: all if they are few, else runs of rows."""
    whole = rows.n_copies * rows.n_features <= _MAX_WHOLE_ENTRIES
    length = -(-max(_SAMPLE_ROWS, _SAMPLE_ROWS_PER_COMPONENT * n_components) // _SAMPLE_RUNS)
    numbers = draw_rows(rows, *((1, rows.n_copies) if whole else (_SAMPLE_RUNS, length)), run)
    held = hold_rows(rows, numbers, run, partial(_in_unit, unit))
    return held, rows.n_rows if numbers is None else len(numbers)


def _in_unit(unit: int, rows: Floats) -> Floats:
    return np.maximum(np.ldexp(rows, -unit), 0.0)


def _units(rows: Rows, sample: Held[Floats], H: Floats, penalty: Penalty, run: Run) -> tuple[Floats, Floats]:
    """Units in exact sums of entries (p,) and coefficients (k,) times roots of weights, from a sample's maxima."""
    entries, coefficients = call(run, "units", _max_entries_and_coefficients, sample, H, penalty)
    root = np.sqrt(_mean_weight(rows))
    return (
        _RELATIVE_UNIT * power_of_two(np.maximum(entries, _MIN_ENTRY) * root),
        _RELATIVE_UNIT * power_of_two(coefficients * root),
    )


def _mean_weight(rows: Rows) -> float:
    """Mean weight of a row in sums: one where weights are counts of copies, so that sums are those of the copies."""
    return rows.total_weight / rows.n_copies


def _max_entries_and_coefficients(X: Floats, H: Floats, penalty: Penalty) -> tuple[Floats, Floats]:
    W = GramProblem.of(penalty.in_gram(H @ H.T)).solve(piecewise_matmul(X, np.ascontiguousarray(H.T)) - penalty.l1)
    return X.max(axis=0), W.max(axis=0)


def fill_rows(rows: Rows, state: Filling) -> Rows:
    """Fill missing entries of rows, lazily if they are chunked; rows without any observed entry become zeros."""
    return fill_blocks(rows, partial(with_zeros_for_empty_rows, imputed_block), state)

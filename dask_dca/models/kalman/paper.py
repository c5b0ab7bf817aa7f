"""The paper's Kalman filter: bilateral separability of two moments of successive frames.

Anchors give the columns of O and of O T as two sets of rays of unknown order and lengths. These are determined by D,
the second moment E[h (x) h] of the state, which must be symmetric and positive semidefinite.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy.optimize import linear_sum_assignment

from dask_dca.anchoring.literal import paper_anchors
from dask_dca.anchoring.parameters import AnchorResult, Settings
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.sequences import pair_mask
from dask_dca.engine.tiles import even_tiles, require_squares
from dask_dca.engine.types import Halo, Window, add_parts
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import Total, power_of_two, product_total
from dask_dca.geometry.planes import draw_weights
from dask_dca.models.kalman.fit import take_frames
from dask_dca.models.kalman.start import MAX_CHANNELS
from dask_dca.models.kalman.system import LinearSystem, positive_part

_MAX_EXHAUSTIVE_COLUMNS: Final = 7  # maximum number of columns for which all orders are compared
_MIN_RIDGE: Final = 1e-9  # minimum ridge of the linear system for the weights of columns
_MIN_COLUMN_WEIGHT: Final = 1e-3  # minimum weight of a column in D
_PRODUCT_GRID: Final = 2.0**-20  # rounding of factors before exact summation, relative to their units
_WEIGHT_SCALE: Final = 2.0**-26  # scales integer weight vectors to the unit sphere
_RUN_ROWS: Final = 1024  # rows that are summed at a time


def pair_columns(cross: Floats) -> tuple[Numbers, Floats, Floats]:
    """Order and scale the columns of D so that it is symmetric and positive.

    cross (k, k). Returns order (k,); lengths (k,); moment (k, k).
    The order is unique: if D and E = D P S are both symmetric positive definite, P a permutation and S a positive
    diagonal matrix, then P S = D^-1 E has positive eigenvalues, like any product of two positive definite matrices, but
    a cycle of two or more columns has others. Given the order, D_ij / l_j = D_ji / l_i determines the lengths up to one
    factor for each connected block of D; such factors stay close to those of the input.
    """
    k = len(cross)
    if k <= _MAX_EXHAUSTIVE_COLUMNS:
        orders = np.array(list(itertools.permutations(range(k))))
        order = orders[_distances(cross, orders).argmin()]
    else:
        order = _improve_by_exchanges(cross, _assigned_order(cross))
    weights, moment = (found[0] for found in _symmetrise(cross, order[None]))
    sizes = np.linalg.norm(cross, axis=0)[order]
    lengths = np.where(sizes > 0.0, sizes / np.where(sizes > 0.0, weights, 1.0), 1.0) / (np.linalg.norm(sizes) or 1.0)
    return order, lengths, moment * np.linalg.norm(sizes)


def common_length(once: Floats, twice: Floats, transition: Floats) -> float:
    """Estimate the scale of a transition matrix from moments of frames one and two steps apart.

    once, twice (k, k): E[h_t (x) h_{t+1}] = D T^T, and E[h_t (x) h_{t+2}] = D T^T T^T; transition (k, k): T up to a
    positive factor. Returns this factor, by least squares; one if the estimate is not positive.
    """
    moved = once @ transition.T
    size = float((moved**2).sum())
    factor = float((moved * twice).sum()) / size if size > 0.0 else 1.0
    return factor if factor > 0.0 else 1.0


def _symmetrise(cross: Floats, orders: Numbers) -> tuple[Floats, Floats]:
    """Weights (m, k) of the unit columns, and D (m, k, k) of norm one, for each order."""
    sizes = np.linalg.norm(cross, axis=0)
    unit = cross / np.where(sizes > 0.0, sizes, 1.0)
    columns = np.moveaxis(unit[:, orders], 0, 1)
    wrong = np.eye(len(cross)) - _reciprocal_products(columns)
    # `wrong` is the quadratic form of |D - D^T|^2 in the weights. Its off-diagonal entries are not positive, so it
    # is an M-matrix, whose inverse has no negative entries, and neither have the weights
    found = np.linalg.eigvalsh(wrong)[:, :1]
    given = sizes[orders] / (np.linalg.norm(sizes) or 1.0)
    ridge = np.maximum(found, _MIN_RIDGE)
    weights = np.linalg.solve(wrong + ridge[:, :, None] * np.eye(len(cross)), (ridge * given)[:, :, None])[:, :, 0]
    weights = np.maximum(weights / _nonzero_norms(weights), _MIN_COLUMN_WEIGHT)
    weights /= _nonzero_norms(weights)
    return weights, columns * weights[:, None, :]


def _nonzero_norms(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(norms > 0.0, norms, 1.0)


def _reciprocal_products(columns: Floats) -> Floats:
    """Products D_ij D_ji for each order; zero where signs differ, or the diagonal is negative."""
    products = np.maximum(columns * np.swapaxes(columns, 1, 2), 0.0)
    diagonal = np.diagonal(columns, axis1=1, axis2=2)
    products[:, np.arange(columns.shape[1]), np.arange(columns.shape[1])] = np.maximum(diagonal, 0.0) ** 2
    return products


def _distances(cross: Floats, orders: Numbers) -> Floats:
    """Squared distance of D, of norm one, from the symmetric positive semidefinite matrices, for each order."""
    moments = _symmetrise(cross, orders)[1]
    even = 0.5 * (moments + np.swapaxes(moments, 1, 2))
    negative = np.minimum(np.linalg.eigvalsh(even), 0.0)
    return ((moments - even) ** 2).sum(axis=(1, 2)) + (negative**2).sum(axis=1)


def _assigned_order(cross: Floats) -> Numbers:
    """Assign columns so that the sum of D_jj (D^-1)_jj is greatest, which is invariant to the columns' lengths."""
    gains = cross * np.linalg.pinv(cross).T
    return linear_sum_assignment(-gains)[1].astype(np.int64)


def _improve_by_exchanges(cross: Floats, order: Numbers) -> Numbers:
    """Exchange pairs of columns while this brings D closer to the symmetric positive semidefinite matrices."""
    k = len(order)
    pairs = np.array(list(itertools.combinations(range(k), 2)))
    best = _distances(cross, order[None])[0]
    while True:
        orders = np.repeat(order[None], len(pairs), axis=0)
        each = np.arange(len(pairs))
        orders[each, pairs[:, 0]], orders[each, pairs[:, 1]] = order[pairs[:, 1]], order[pairs[:, 0]]
        distances = _distances(cross, orders)
        if not distances.min() < best:
            return order
        order, best = orders[distances.argmin()], distances.min()


@dataclass(frozen=True)
class _MomentState:
    edges: Numbers
    unit: Floats  # (p,)
    weights: Floats  # (p, q), the vectors eta in the unit of the frames


@dataclass(frozen=True)
class _Moments:
    """Sums of products of frames: x_t x_t^T of all, and of triples x2 x3^T, x1 x3^T, and the paper's M."""

    same: Floats
    next: Floats
    second: Floats
    paper: Floats  # ((1 + q) p, p)


def fit_paper_system(
    rows: Rows, edges: Numbers, k: int, settings: Settings, run: Run
) -> tuple[LinearSystem, AnchorResult]:
    """Fit a linear dynamical system by the paper's section on the Kalman filter.

    The paper covers the rows of M = [X2^T X3; X2^T Diag(X1 eta) X3] by frames x2, and the rows of M^T by frames x3. But
    M is O D (O T)^T: its rows are combinations of the columns of O T, whose candidates are the frames x3, and the rows
    of its transpose are combinations of the columns of O, whose candidates are the frames x2. The paper's text
    swaps the two, which is corrected here.
    edges (m + 1,). Returns the system, and the anchors of O: O = X_A, T by least squares from O T = X_B, with the
    columns of X_B in the order and of the lengths that make D = O^+ M (O T)^+^T symmetric and positive. The
    remaining common length is estimated from frames two steps apart. T is used as it is, even if it is unstable. The
    paper does not estimate the noise: here Q and R are the residual covariances of the states O^+ x and of the frames.
    Raises InvalidInputError: more than 1,024 channels, or sequences of fewer than three frames.
    """
    if rows.n_features > MAX_CHANNELS:
        msg = (
            f"method='paper' forms moments of p x p and takes up to {MAX_CHANNELS} features; received {rows.n_features}"
        )
        raise InvalidInputError(msg)
    triples = int(np.maximum(np.diff(edges) - 2, 0).sum())
    if triples == 0:
        msg = f"method='paper' learns from triples of frames, but no sequence has one (n_samples = {rows.n_rows})"
        raise InvalidInputError(msg)
    take_frames(rows, edges, replace(run, reads=None))  # raises if values of a sample are out of range
    sums = _moments(rows, edges, k, settings.seed, run)
    p = rows.n_features
    swapped = sums.paper.reshape(-1, p, p).transpose(0, 2, 1).reshape(-1, p)
    # rows of M lie in the span of the columns of O T, rows of its transpose in that of O
    following = paper_anchors(as_rows(sums.paper / triples), k, settings, run, Y=rows)
    present = paper_anchors(as_rows(swapped / triples), k, settings, run, Y=rows)
    width = min(len(following.indices), len(present.indices))
    observation = fetch_rows(rows, present.indices[:width], run).T
    moved = fetch_rows(rows, following.indices[:width], run).T
    with one_blas_thread():
        return _system(observation, moved, sums, (rows.n_rows, triples)), present


def _system(observation: Floats, candidates: Floats, sums: _Moments, counts: tuple[int, int]) -> LinearSystem:
    """Estimate T by least squares from the ordered, scaled columns of O T, and residual covariances Q and R."""
    n, triples = counts
    inverse = np.linalg.pinv(observation, rcond=1e-8)
    cross = inverse @ sums.next @ np.linalg.pinv(candidates, rcond=1e-8).T
    order, lengths, _ = pair_columns(cross)
    transition = inverse @ (candidates[:, order] * lengths)
    once, twice = (inverse @ moment @ inverse.T for moment in (sums.next, sums.second))
    transition *= common_length(once, twice, transition)
    frames = sums.same / n
    spread, step = inverse @ frames @ inverse.T, once.T / triples  # E[s_{t+1} s_t^T]
    noise_covariance = spread - transition @ step.T - step @ transition.T + transition @ spread @ transition.T
    outside = np.eye(len(observation)) - observation @ inverse
    least = 1e-8 * float(np.trace(frames)) / len(frames) or 1.0
    own = np.maximum(np.diagonal(outside @ frames @ outside.T), least)
    k = len(transition)
    return LinearSystem(
        transition,
        observation,
        positive_part(noise_covariance, 1e-8 * float(np.trace(spread)) / k or 1.0),
        own,
        np.zeros(k),
        positive_part(spread, 1e-8 * float(np.trace(spread)) / k or 1.0),
        np.zeros(len(observation)),
    )


def _moments(rows: Rows, edges: Numbers, k: int, seed: int, run: Run) -> _Moments:
    p = rows.n_features
    sample = fetch_rows(rows, np.arange(min(rows.n_rows, 256)), run)
    unit = power_of_two(np.sqrt((sample**2).mean(axis=0)))
    eta = draw_weights(seed, min(max(2, k), p), p)[0].T * _WEIGHT_SCALE  # (p, q), from the unit sphere
    state = _MomentState(edges, _PRODUCT_GRID * unit, eta / unit.max())
    job: Pass[list[Total]] = Pass("moments", _block, add_parts, Halo(after=2))
    same, following, second, *weighted = (total.value() for total in run_pass(rows, job, state, run))
    return _Moments(same, following, second, np.vstack([following, *weighted]))


def _block(state: _MomentState, window: Window, *columns: Any) -> list[Total]:
    p, q, unit = len(state.unit), state.weights.shape[1], state.unit
    found = [product_total(np.zeros((0, p)), np.zeros((0, p)), unit, unit) for _ in range(3 + q)]
    for begin in range(window.start, window.stop, _RUN_ROWS):
        stop = min(begin + _RUN_ROWS, window.stop)
        parts = [part[begin - window.first : stop + 2 - window.first] for part in columns]
        for numbers, tile in even_tiles(parts, begin, _RUN_ROWS + 64):
            require_squares(tile[: len(numbers)], numbers)
            found = add_parts([found, _run_sums(state, begin, stop, tile)])
    return found


def _run_sums(state: _MomentState, begin: int, stop: int, tile: Floats) -> list[Total]:
    count, unit = stop - begin, state.unit
    one, two, three = tile[:count], tile[1 : count + 1], tile[2 : count + 2]
    triple = pair_mask(state.edges, begin, stop, 2)[:, None]
    heights = np.rint((tile @ state.weights)[:count] / _PRODUCT_GRID) * _PRODUCT_GRID
    first, middle = np.where(triple, one, 0.0), np.where(triple, two, 0.0)
    found = [product_total(one, one, unit, unit), product_total(middle, three, unit, unit)]
    found.append(product_total(first, three, unit, unit))
    found += [product_total(middle * heights[:, [j]], three, unit, unit) for j in range(heights.shape[1])]
    return found

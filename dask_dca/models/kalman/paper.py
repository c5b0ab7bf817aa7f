"""The paper's Kalman filter: bilateral separability of two moments of successive frames.

Anchors give the columns of O and of O T as two sets of rays: neither their order nor their lengths are known. But D is
the second moment of the state, E[h (x) h], so it must be symmetric and positive.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.optimize import linear_sum_assignment

from dask_dca.anchoring.literal import paper_anchors
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.sequences import pair_mask
from dask_dca.engine.tiles import even_tiles, require_squares
from dask_dca.engine.types import Halo, add_parts
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.exact import power_of_two, product_total
from dask_dca.geometry.planes import draw_weights
from dask_dca.models.kalman.fit import take_frames
from dask_dca.models.kalman.start import WIDEST
from dask_dca.models.kalman.system import LinearSystem, positive_part

if TYPE_CHECKING:
    from dask_dca.anchoring.parameters import AnchorResult, Settings
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.types import Window
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.exact import Total

_EVERY: Final = 7  # columns up to which all orders are compared
_LEAST_RIDGE: Final = 1e-9
_LEAST_WEIGHT: Final = 1e-3  # of a column in D: lengths are not thrown further than this
_FINE: Final = 2.0**-20
_WHOLE: Final = 2.0**-26  # whole vectors of the unit sphere to their length
_RUN: Final = 1024


def pair_columns(cross: Floats) -> tuple[Numbers, Floats, Floats]:
    """Order and scale the columns of D so that it is symmetric and positive.

    cross (k, k). Returns order (k,); lengths (k,); moment (k, k).
    At most one order does it exactly. If D and E = D P S are both symmetric and positive definite, P a permutation and
    S positive and diagonal, then P S = D^-1 E has positive eigenvalues, as products of two positive definite matrices
    have; but those of a cycle of two or more columns are not all positive. Given the order, D_ij / l_j = D_ji / l_i
    fixes the lengths up to one factor, or one for each block of the state that D does not link to others; then columns
    stay near the lengths that they came with.
    """
    k = len(cross)
    if k <= _EVERY:
        orders = np.array(list(itertools.permutations(range(k))))
        order = orders[_distances(cross, orders).argmin()]
    else:
        order = _exchanged(cross, _assigned(cross))
    weights, moment = (found[0] for found in _symmetrised(cross, order[None]))
    sizes = np.linalg.norm(cross, axis=0)[order]
    lengths = np.where(sizes > 0.0, sizes / np.where(sizes > 0.0, weights, 1.0), 1.0) / (np.linalg.norm(sizes) or 1.0)
    return order, lengths, moment * np.linalg.norm(sizes)


def common_length(once: Floats, twice: Floats, transition: Floats) -> float:
    """Find the factor of a transition from moments of frames that are one and two steps apart.

    once, twice (k, k): E[h_t (x) h_{t+1}] = D T^T, and E[h_t (x) h_{t+2}] = D T^T T^T; transition (k, k): T up to a
    positive factor. Returns the factor, by least squares; one where none is positive.
    """
    moved = once @ transition.T
    size = float((moved**2).sum())
    factor = float((moved * twice).sum()) / size if size > 0.0 else 1.0
    return factor if factor > 0.0 else 1.0


def _symmetrised(cross: Floats, orders: Numbers) -> tuple[Floats, Floats]:
    """Weights (m, k) of the columns, of length one each, and D (m, k, k) of norm one, for each order."""
    sizes = np.linalg.norm(cross, axis=0)
    unit = cross / np.where(sizes > 0.0, sizes, 1.0)
    columns = np.moveaxis(unit[:, orders], 0, 1)
    wrong = np.eye(len(cross)) - _agreement(columns)
    # the quadratic form of |D - D^T|^2 in the weights; off the diagonal it is nowhere positive, so its inverse has no
    # negative entry, nor have the weights
    found = np.linalg.eigvalsh(wrong)[:, :1]
    given = sizes[orders] / (np.linalg.norm(sizes) or 1.0)
    ridge = np.maximum(found, _LEAST_RIDGE)
    weights = np.linalg.solve(wrong + ridge[:, :, None] * np.eye(len(cross)), (ridge * given)[:, :, None])[:, :, 0]
    weights = np.maximum(weights / _lengths(weights), _LEAST_WEIGHT)
    weights /= _lengths(weights)
    return weights, columns * weights[:, None, :]


def _lengths(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(norms > 0.0, norms, 1.0)


def _agreement(columns: Floats) -> Floats:
    """Products D_ij D_ji of each order's matrix; zero where signs differ, or the diagonal is negative."""
    products = np.maximum(columns * np.swapaxes(columns, 1, 2), 0.0)
    diagonal = np.diagonal(columns, axis1=1, axis2=2)
    products[:, np.arange(columns.shape[1]), np.arange(columns.shape[1])] = np.maximum(diagonal, 0.0) ** 2
    return products


def _distances(cross: Floats, orders: Numbers) -> Floats:
    """Squared distance of D, of norm one, from the symmetric positive matrices, for each order."""
    moments = _symmetrised(cross, orders)[1]
    even = 0.5 * (moments + np.swapaxes(moments, 1, 2))
    negative = np.minimum(np.linalg.eigvalsh(even), 0.0)
    return ((moments - even) ** 2).sum(axis=(1, 2)) + (negative**2).sum(axis=1)


def _assigned(cross: Floats) -> Numbers:
    """The order of greatest D_jj (D^-1)_jj in all, which no lengths change; in positive ones each is at least 1."""
    gains = cross * np.linalg.pinv(cross).T
    return linear_sum_assignment(-gains)[1].astype(np.int64)


def _exchanged(cross: Floats, order: Numbers) -> Numbers:
    """Exchange two columns as long as D comes nearer to the symmetric positive matrices."""
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
class _State:
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
    """Learn a linear dynamical system as the paper's section on the Kalman filter says.

    The paper covers the rows of M = [X2^T X3; X2^T Diag(X1 eta) X3] by frames x2, and the rows of M^T by frames x3. But
    M is O D (O T)^T: its rows are combinations of the columns of O T, whose candidates are the frames x3, and the rows
    of its transpose are combinations of the columns of O, whose candidates are the frames x2. The two are swapped in
    the text, and put right here.
    edges (m + 1,). Returns the system, and the anchors of O: O = X_A, T by least squares from O T = X_B, with the
    columns of X_B in the order and of the lengths that make D = O^+ M (O T)^+^T symmetric and positive. One length
    stays open, that of all columns together; frames two steps apart give it. T is what the equations say, even where it
    grows. The paper leaves the noise open: here Q and R are the covariances of what is left of states O^+ x and of
    frames.
    Raises InvalidInputError: more than 1,024 channels, or sequences of fewer than three frames.
    """
    if rows.n_features > WIDEST:
        msg = f"method='paper' forms moments of p x p and takes up to {WIDEST} features; received {rows.n_features}"
        raise InvalidInputError(msg)
    triples = int(np.maximum(np.diff(edges) - 2, 0).sum())
    if triples == 0:
        msg = f"method='paper' learns from triples of frames, but no sequence has one (n_samples = {rows.n_rows})"
        raise InvalidInputError(msg)
    take_frames(rows, edges, replace(run, reads=None))  # checks the range, on a sample
    sums = _moments(rows, edges, k, settings.seed, run)
    p = rows.n_features
    swapped = sums.paper.reshape(-1, p, p).transpose(0, 2, 1).reshape(-1, p)
    # rows of M lie in the span of the columns of O T, rows of its transpose in that of O
    following = paper_anchors(as_rows(sums.paper / triples), k, settings, run, Y=rows.source)
    present = paper_anchors(as_rows(swapped / triples), k, settings, run, Y=rows.source)
    width = min(len(following.indices), len(present.indices))
    observation = fetch_rows(rows, present.indices[:width], run).T
    moved = fetch_rows(rows, following.indices[:width], run).T
    with one_blas_thread():
        return _system(observation, moved, sums, (rows.n_rows, triples)), present


def _system(observation: Floats, candidates: Floats, sums: _Moments, counts: tuple[int, int]) -> LinearSystem:
    """T by least squares from the columns of O T in their order and lengths, and covariances of what is left."""
    n, triples = counts
    inverse = np.linalg.pinv(observation, rcond=1e-8)
    cross = inverse @ sums.next @ np.linalg.pinv(candidates, rcond=1e-8).T
    order, lengths, _ = pair_columns(cross)
    transition = inverse @ (candidates[:, order] * lengths)
    once, twice = (inverse @ moment @ inverse.T for moment in (sums.next, sums.second))
    transition *= common_length(once, twice, transition)
    frames = sums.same / n
    spread, step = inverse @ frames @ inverse.T, once.T / triples  # E[s_{t+1} s_t^T]
    kicks = spread - transition @ step.T - step @ transition.T + transition @ spread @ transition.T
    outside = np.eye(len(observation)) - observation @ inverse
    least = 1e-8 * float(np.trace(frames)) / len(frames) or 1.0
    own = np.maximum(np.diagonal(outside @ frames @ outside.T), least)
    k = len(transition)
    return LinearSystem(
        transition,
        observation,
        positive_part(kicks, 1e-8 * float(np.trace(spread)) / k or 1.0),
        own,
        np.zeros(k),
        positive_part(spread, 1e-8 * float(np.trace(spread)) / k or 1.0),
        np.zeros(len(observation)),
    )


def _moments(rows: Rows, edges: Numbers, k: int, seed: int, run: Run) -> _Moments:
    p = rows.n_features
    sample = fetch_rows(rows, np.arange(min(rows.n_rows, 256)), run)
    unit = power_of_two(np.sqrt((sample**2).mean(axis=0)))
    eta = draw_weights(seed, min(max(2, k), p), p)[0].T * _WHOLE  # (p, q), from the unit sphere
    state = _State(edges, _FINE * unit, eta / unit.max())
    job: Pass[list[Total]] = Pass("moments", _block, add_parts, Halo(after=2))
    same, following, second, *weighted = (total.value() for total in run_pass(rows, job, state, run))
    return _Moments(same, following, second, np.vstack([following, *weighted]))


def _block(state: _State, window: Window, *columns: Any) -> list[Total]:
    p, q, unit = len(state.unit), state.weights.shape[1], state.unit
    found = [product_total(np.zeros((0, p)), np.zeros((0, p)), unit, unit) for _ in range(3 + q)]
    for begin in range(window.start, window.stop, _RUN):
        stop = min(begin + _RUN, window.stop)
        parts = [part[begin - window.first : stop + 2 - window.first] for part in columns]
        for numbers, tile in even_tiles(parts, begin, _RUN + 64):
            require_squares(tile[: len(numbers)], numbers)
            found = add_parts([found, _run_sums(state, begin, stop, tile)])
    return found


def _run_sums(state: _State, begin: int, stop: int, tile: Floats) -> list[Total]:
    count, unit = stop - begin, state.unit
    one, two, three = tile[:count], tile[1 : count + 1], tile[2 : count + 2]
    triple = pair_mask(state.edges, begin, stop, 2)[:, None]
    heights = np.rint((tile @ state.weights)[:count] / _FINE) * _FINE
    first, middle = np.where(triple, one, 0.0), np.where(triple, two, 0.0)
    found = [product_total(one, one, unit, unit), product_total(middle, three, unit, unit)]
    found.append(product_total(first, three, unit, unit))
    found += [product_total(middle * heights[:, [j]], three, unit, unit) for j in range(heights.shape[1])]
    return found

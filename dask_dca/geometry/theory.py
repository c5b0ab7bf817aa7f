"""The paper's theory as functions: identifiability, probabilities of votes, and the number of sub-problems.

Points are positions in a slice of the cone (the paper's intersection hyperplane, where points have a prime): anchors
are the vertices of a polygon or polytope in it, and a random plane becomes a random direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.planes import child_seeds, uniforms

_RANK_TOL: Final = 1e-10  # singular values up to this share of the greatest one count as zero
_RATIO_TOL: Final = 1e-7  # ratios of weights that differ by up to this share of the greatest one count as equal


def rank_one_terms(first: ArrayLike, second: ArrayLike, n_terms: int | None = None) -> tuple[Floats, Floats]:
    """
    Split two moments O_i Diag(a) O_j^T and O_i Diag(b) O_j^T into their rank-one terms.

    Parameters
    ----------
    first, second : array_like, shape (p_i, p_j)
        The moments, before vectorisation: the paper's X_1 and X_2. Weights a are not zero.
    n_terms : int, optional
        Number of terms k; the rank of the first moment if None.

    Returns
    -------
    left : ndarray of float64, shape (p_i, k)
        Columns of O_i, unit vectors, the term of greatest b / a first.
    right : ndarray of float64, shape (p_j, k)
        Columns of O_j, of such lengths that `left @ right.T` is the first moment: its weights are in them.

    Raises
    ------
    ValueError
        Two terms have the same ratio of weights b / a, so that the terms are not unique; or ratios are complex, so that
        no such terms exist.

    Notes
    -----
    With the singular value decomposition X_1 = U S V^T, the matrix S^-1/2 U^T X_2 V S^-1/2 is W Diag(b / a) W^-1, and
    the terms are the columns of U S^1/2 W and V S^1/2 W^-T. The paper asks for a != b alone; the proof's "unique
    eigendecomposition" needs all ratios to differ, which a random eta brings about with probability one. What it prints
    as W^T is W^-1.

    Examples
    --------
    >>> O_i, O_j = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 2.0]])
    >>> left, right = rank_one_terms(O_i @ np.diag([2.0, 1.0]) @ O_j.T, O_i @ np.diag([2.0, 3.0]) @ O_j.T)
    >>> np.outer(left[:, 0], right[:, 0]).round(6).tolist()
    [[0.0, 2.0], [0.0, 2.0]]
    """
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    U, sizes, Vt = np.linalg.svd(one, full_matrices=False)
    k = int((sizes > _RANK_TOL * sizes[0]).sum()) if n_terms is None else n_terms
    roots = np.sqrt(sizes[:k])
    U, V = U[:, :k], Vt[:k].T
    ratios, W = np.linalg.eig((U.T @ other @ V) / np.outer(roots, roots))
    order = np.argsort(-ratios.real, kind="stable")
    ratios, W = ratios[order], W[:, order]
    gaps = np.abs(np.diff(ratios))
    if np.abs(ratios.imag).max(initial=0.0) > 0.0 or gaps.min(initial=np.inf) <= _RATIO_TOL * np.abs(ratios).max(
        initial=0.0
    ):
        msg = f"the terms' weights have no {k} different real ratios in the two moments: {ratios}; take another eta"
        raise ValueError(msg)
    left, right = U * roots @ W.real, V * roots @ np.linalg.inv(W.real).T
    norms = np.linalg.norm(left, axis=0)
    return left / norms, right * norms


def identify_rows(first: ArrayLike, second: ArrayLike, left: ArrayLike, right: ArrayLike) -> Numbers:
    """
    Find the rows whose outer products two moments are made of: the anchors of the paper's lemma.

    Parameters
    ----------
    first, second : array_like, shape (p_i, p_j)
        Two moments, sums of outer products of the same k rows with positive weights.
    left, right : array_like, shapes (n, p_i) and (n, p_j)
        Both views of all rows.

    Returns
    -------
    ndarray of int64, shape (k,)
        For each term the row whose outer product is nearest to it in angle; the lower row on a tie.

    Raises
    ------
    ValueError
        The moments do not determine the terms.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> left, right = rng.standard_normal((50, 4)), rng.standard_normal((50, 6))
    >>> picked = [7, 30, 11]
    >>> moments = [left[picked].T @ np.diag(weights) @ right[picked] for weights in rng.random((2, 3))]
    >>> sorted(identify_rows(*moments, left, right).tolist())
    [7, 11, 30]
    """
    terms = rank_one_terms(first, second)
    cosines = [
        _cosines(np.asarray(view, dtype=np.float64), own) for view, own in zip((left, right), terms, strict=True)
    ]
    return np.asarray((cosines[0] * cosines[1]).argmax(axis=0), dtype=np.int64)


def _cosines(rows: Floats, columns: Floats) -> Floats:
    lengths = np.outer(np.linalg.norm(rows, axis=1), np.linalg.norm(columns, axis=0))
    return np.divide(rows @ columns, lengths, out=np.zeros_like(lengths), where=lengths > 0.0)


def anchor_angle(previous: ArrayLike, anchor: ArrayLike, following: ArrayLike) -> float:
    """
    Angle alpha of the directions in which a vertex of a polygon is the furthest point.

    Parameters
    ----------
    previous, anchor, following : array_like, shape (2,) or more
        The vertex A2' of the slice and its neighbours A1' and A3'.

    Returns
    -------
    float
        Radians: pi minus the interior angle, near zero for a flat anchor.

    Notes
    -----
    In the paper's Proposition alpha is the angle between the lines H1 and H2 at right angles to the sides at A2',
    through which a direction turns while A2' is extreme. That is the exterior angle. The formula printed below the
    proposition is the interior angle, which grows as the anchor gets flat, against the remark that follows it; a
    test decides by simulation.

    Examples
    --------
    >>> round(anchor_angle([1.0, 0.0], [0.0, 0.0], [0.0, 1.0]) / np.pi, 6)
    0.5
    """
    vertex = np.asarray(anchor, dtype=np.float64)
    return np.pi - _angle(vertex - np.asarray(previous), vertex - np.asarray(following))


def false_angle(other: ArrayLike, anchor: ArrayLike, covered: ArrayLike) -> float:
    """
    Angle beta of the directions in which a row that is not an anchor is chosen instead of one.

    Parameters
    ----------
    other : array_like, shape (2,) or more
        A row B1' of Y that is not an anchor.
    anchor : array_like, shape (2,) or more
        The anchor A2'.
    covered : array_like, shape (2,) or more
        The row C1' of X that is furthest on this side.

    Returns
    -------
    float
        Radians: the angle at B1' between A2' and C1'. In these directions B1' lies beyond X and before A2'.

    Examples
    --------
    >>> round(false_angle([1.0, 0.0], [2.0, 0.0], [1.0, 1.0]) / np.pi, 6)
    0.5
    """
    place = np.asarray(other, dtype=np.float64)
    return _angle(place - np.asarray(anchor), place - np.asarray(covered))


def _angle(first: Floats, second: Floats) -> float:
    lengths = float(np.sqrt((first @ first) * (second @ second)))
    if lengths == 0.0:
        msg = "two of the points are the same: there is no angle between them"
        raise ValueError(msg)
    return math.acos(min(1.0, max(-1.0, float(first @ second) / lengths)))


def vote_probability(alpha: float, beta: float = 0.0, *, sides: int = 2) -> float:
    """
    Probability that a sub-problem on a random plane chooses an anchor.

    Parameters
    ----------
    alpha : float
        The anchor's angle, from `anchor_angle`.
    beta : float, default 0.0
        Angle within it in which another row is chosen instead, from `false_angle`; 0 where X = Y.
    sides : {1, 2}, default 2
        On how many sides of a plane rows are chosen. The paper's Proposition, (alpha - beta) / 2 pi, counts one side
        of a plane; a sub-problem chooses a row on both.

    Returns
    -------
    float
        The probability, (alpha - beta) sides / 2 pi, at least zero.

    Examples
    --------
    >>> vote_probability(np.pi / 2), vote_probability(np.pi / 2, sides=1)
    (0.5, 0.25)
    """
    return max(0.0, (alpha - beta) * sides / (2.0 * np.pi))


def simulate_votes(X: ArrayLike, n_planes: int, *, Y: ArrayLike | None = None, seed: int = 0) -> Numbers:
    """
    Solve sub-problems on random planes, in a slice of the cone.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Places of the rows to be covered.
    n_planes : int
        Number of planes s.
    Y : array_like, shape (m, d), optional
        Places of the rows to choose from; X itself if None.
    seed : int, default 0
        Seed of the planes.

    Returns
    -------
    ndarray of int64, shape (s, 2)
        On each plane the row of Y just beyond X (of X: the extreme one) on either side; -1 where there is none.

    Examples
    --------
    >>> triangle = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.2, 0.2]]
    >>> sorted(set(simulate_votes(triangle, 50).ravel().tolist()))
    [0, 1, 2]
    """
    covered = np.asarray(X, dtype=np.float64)
    chosen_from = covered if Y is None else np.asarray(Y, dtype=np.float64)
    directions = ndtri(uniforms(child_seeds(seed, np.arange(n_planes)), covered.shape[1]))
    found = np.empty((n_planes, 2), dtype=np.int64)
    for side, sign in enumerate((1.0, -1.0)):
        reach = (sign * (covered @ directions.T)).max(axis=0)
        heights = sign * (chosen_from @ directions.T)
        beyond = np.where(heights >= reach, heights, np.inf)
        found[:, side] = np.where(np.isfinite(beyond).any(axis=0), beyond.argmin(axis=0), -1)
    return found


def separation(anchors: ArrayLike, others: ArrayLike = ()) -> float:
    """
    Constant c of the paper's theorem: k times the least lead of an anchor's votes over a false row's.

    Parameters
    ----------
    anchors : array_like, shape (k,)
        Probabilities of a vote of the anchors.
    others : array_like, shape (m,), optional
        Those of all other rows.

    Returns
    -------
    float
        The constant, negative if votes can't distinguish anchors from other rows.

    Examples
    --------
    >>> round(separation([0.5, 0.25, 0.25], [0.05]), 6)
    0.6
    """
    votes = np.asarray(anchors, dtype=np.float64)
    false = float(np.max(np.asarray(others, dtype=np.float64), initial=0.0))
    return len(votes) * (float(votes.min()) - false)


def success_bound(n_subproblems: int, k: int, c: float) -> float:
    """
    Bound from below the probability that votes find all anchors: the paper's Theorem.

    Parameters
    ----------
    n_subproblems : int
        Number of planes s.
    k : int
        Number of anchors.
    c : float
        From `separation`.

    Returns
    -------
    float
        1 - k exp(-c s / 3 k), at least zero. `dask_dca.n_subproblems` inverts it.

    Examples
    --------
    >>> round(success_bound(208, 10, 1.0), 3)
    0.99
    """
    return max(0.0, 1.0 - k * math.exp(-c * n_subproblems / (3.0 * k)))


def measured_success(
    choices: Numbers, anchors: ArrayLike, counts: Sequence[int], *, trials: int = 200, seed: int = 0
) -> Floats:
    """
    Measure how often the k rows with the most votes are the anchors.

    Parameters
    ----------
    choices : ndarray of int64, shape (s, 2)
        What sub-problems chose, from `simulate_votes`: a pool of planes that trials draw from.
    anchors : array_like of int, shape (k,)
        The true anchors' row numbers.
    counts : sequence of int
        Numbers of planes to measure.
    trials : int, default 200
        How many times, for each.
    seed : int, default 0
        Seed of the draws.

    Returns
    -------
    ndarray of float64, shape (len(counts),)
        Share of the trials in which every anchor has more votes than any other row.

    Examples
    --------
    >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.2, 0.2]])
    >>> measured_success(simulate_votes(corners, 1000), [0, 1, 2], [1, 40])
    array([0., 1.])
    """
    rng = np.random.default_rng(seed)
    true = np.asarray(anchors, dtype=np.int64)
    size = int(max(choices.max(), true.max())) + 1
    shares = np.zeros(len(counts))
    for i, count in enumerate(counts):
        for _ in range(trials):
            picked = choices[rng.integers(len(choices), size=count)]
            votes = np.bincount(picked[picked >= 0], minlength=size)
            lead = votes[true].min()
            votes[true] = 0
            shares[i] += lead > votes.max(initial=0)
    return shares / trials

"""The smallest simplex around points, some of which noise may leave outside.

Points are in affine coordinates z = (1, y), vertices the rows of V; barycentric coordinates of the points are Z Q with
Q = V^-1. The volume is least where log |det Q| is greatest, and points are inside where no coordinate is negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import minimize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Simplex", "enclosing_simplex", "lifted", "linear_size"]

_PENALTY: Final = 2.0  # of squares of negative coordinates, over what costs nothing of them,
_PENALTIES: Final = (200.0, 2_000.0, 20_000.0)  # at most, in rounds in which the slack follows the simplex, too
_SLACK: Final = 1e-4  # of a coordinate that costs nothing, at least
_BLOWN_UP: Final = 1.1  # the simplex to start from
_STEPS: Final = 500
_FLAT: Final = 1e-9  # volume of the start, to the power 1 / (k - 1), below which it is no simplex


@dataclass(frozen=True)
class Simplex:
    """A simplex and what it is around.

    vertices (k, k - 1); growth: k - 1st root of its volume, over that of the start; outside: the greatest share of a
    vertex's height by which a point is beyond the opposite face; converged: whether the steps ended by themselves.
    """

    vertices: Floats
    growth: float
    outside: float
    converged: bool


def enclosing_simplex(points: Floats, start: Floats, noise: float) -> Simplex | None:
    """Find the smallest simplex that holds points up to noise.

    points (m, k - 1); start (k, k - 1): vertices; noise: how far points may be outside, as a distance. Returns None if
    the start is flat. J. Li, J. Bioucas-Dias, "Minimum volume simplex analysis", IGARSS 2008; with coordinates that sum
    to one by parametrisation, and a penalty in the place of constraints.
    """
    centre, scale = points.mean(axis=0), float(np.abs(points - points.mean(axis=0)).max())
    if scale == 0.0:
        return None
    Z, V = (lifted((part - centre) / scale) for part in (points, start))
    size = _size_of(V)
    if size < _FLAT:
        return None
    middle = V.mean(axis=0)
    Q, good = np.linalg.inv(middle + _BLOWN_UP * (V - middle)), True
    for most in _PENALTIES:
        slack = np.maximum(_SLACK, noise / scale * np.linalg.norm(Q[1:], axis=0))
        Q, good = _smallest(Z, Q, slack, float(np.clip(_PENALTY / slack.mean(), _PENALTIES[0], most)))
    found = np.linalg.inv(Q)
    outside = float(-np.minimum((Z @ Q).min(), 0.0))
    return Simplex(found[:, 1:] * scale + centre, _size_of(found) / size, outside, good)


def lifted(points: Floats) -> Floats:
    """Put a one before the coordinates of points (m, d), so that affine maps are matrices."""
    return np.hstack([np.ones((len(points), 1)), points])


def linear_size(vertices: Floats) -> float:
    """Measure a simplex.

    vertices (k, k - 1). Returns the k - 1st root of its volume, up to a factor.
    """
    return _size_of(lifted(vertices))


def _size_of(V: Floats) -> float:
    return float(np.exp(np.linalg.slogdet(V)[1] / max(len(V) - 1, 1)))


def _smallest(Z: Floats, Q: Floats, slack: Floats, penalty: float) -> tuple[Floats, bool]:
    """Go down from a simplex; the last column of Q is what makes coordinates sum to one."""
    k = len(Q)

    def complete(free: Floats) -> Floats:
        columns = free.reshape(k, k - 1)
        return np.hstack([columns, np.eye(k)[:, :1] - columns.sum(axis=1, keepdims=True)])

    def cost(free: Floats) -> tuple[float, Floats]:
        trial = complete(free)
        sign, logarithm = np.linalg.slogdet(trial)
        if sign == 0.0 or not np.isfinite(logarithm):
            return np.inf, np.zeros_like(free)
        beyond = np.minimum(Z @ trial + slack, 0.0)
        slope = 2.0 * penalty * (Z.T @ beyond) - np.linalg.inv(trial).T
        return penalty * float((beyond**2).sum()) - logarithm, (slope[:, :-1] - slope[:, -1:]).ravel()

    found = minimize(cost, Q[:, :-1].ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return complete(found.x), bool(found.success)

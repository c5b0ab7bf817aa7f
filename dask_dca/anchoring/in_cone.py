"""`in_cone`: which rows lie inside a cone, on data of any size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dask_dca.anchoring.parameters import check_integer, draw_seed, is_auto, open_beside
from dask_dca.engine.cubes import labelled
from dask_dca.engine.passes import Run, map_rows
from dask_dca.engine.process import numpy_defaults, one_blas_thread
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.tiles import even_tiles, require_finite, tile_height
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.arrays import Floats
from dask_dca.geometry.membership import points_in_cone
from dask_dca.geometry.separation import Cone, prepare_cone

_MAX_PLANES: Final = 10_000  # greatest number of random planes
_MIN_TOLERANCE: Final = 1e-9  # default tolerance, if `_ROUNDING_UNITS` is not more
_ROUNDING_UNITS: Final = 32  # default tolerance in units of rounding of the data's dtype


@dataclass(frozen=True)
class _State:
    cone: Cone
    exact: bool
    tolerance: float
    height: int  # rows of a tile
    proofs: bool


@numpy_defaults
def in_cone(
    X: Any,
    generators: Any,
    *,
    n_subproblems: int | str = "auto",
    exact: bool = False,
    random_state: Any = 0,
    tolerance: float | None = None,
    return_proofs: bool = False,
) -> Any:
    """
    Determine which rows lie inside the cone of some generators.

    A row is called outside only with a proof: a vector u with u . g >= 0 for all generators g and u . x < 0. Planes
    of a reference axis and a random direction give most proofs, at the cost of one matrix product. A few rounds of
    projections follow. With `exact`, the remaining rows are decided by least squares on the supports found by the
    projections, and then by non-negative least squares, one row at a time.

    Parameters
    ----------
    X : array-like of shape (n, p)
        Rows of any sign: NumPy, SciPy sparse, Dask array or DataFrame, xarray, zarr array or its path.
    generators : array-like of shape (k, p)
        Rays of the cone, such as the `components_` of a model; of any sign, repeated, dependent or zero.
    n_subproblems : int or "auto", default "auto"
        Number of random planes s: by default 4 k, or none where all faces of the cone are known (independent
        generators, a cone of at most six dimensions, or one that has at most 4,096 faces).
    exact : bool, default False
        Decide every row. Otherwise a row without a proof that it is outside counts as inside, which is certain if all
        faces are known, and likely if not.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the planes.
    tolerance : float, optional
        Distance from the cone, as a share of the row's length, up to which a row counts as inside. By default 1e-9,
        or 32 units of rounding of the data's dtype if that is more.
    return_proofs : bool, default False
        Return the proofs as well.

    Returns
    -------
    inside : ndarray or dask.array.Array of bool, shape (n,)
        Lazy for chunked data. All-zero rows are inside every cone.
    proofs : ndarray or dask.array.Array of float64, shape (n, p)
        If asked for: the unit vector that separates each row outside, zeros for rows inside.

    Raises
    ------
    DCAError
        Shapes do not match, entries are not finite, or a parameter is out of range.

    See Also
    --------
    dask_dca.geometry.separation.is_proof : Check proofs.

    Notes
    -----
    The test of section 4.4, DCA as a subroutine of other methods, of Zhou, Bilmes and Guestrin, NIPS 2014, on planes
    with a reference axis inside the dual cone. A cone that is not pointed (it contains a line) has no such planes: its
    rows are decided by least squares, whatever `exact` is, with proofs that hold up to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> rays = np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> in_cone([[2.0, 1.0], [1.0, 2.0], [0.0, 0.0]], rays)
    array([ True, False,  True])
    >>> inside, proofs = in_cone([[1.0, 2.0]], rays, return_proofs=True)
    >>> bool((proofs @ rays.T >= 0).all()), bool(proofs[0] @ [1.0, 2.0] < 0)
    (True, True)
    """
    rows = as_rows(X)
    tolerance = _check_tolerance(tolerance, rows.output_dtype)
    n_planes = _check_planes(n_subproblems)
    with one_blas_thread():
        rays = fetch_rows(open_beside(rows, generators, "generators"), None, Run())
        cone = prepare_cone(rays, n_planes, draw_seed(random_state))
    height = tile_height(rows.n_rows, rows.n_features)
    state = _State(cone, bool(exact), tolerance, height, bool(return_proofs))
    if not return_proofs:
        return map_rows(rows, _test_block, state, None).astype(bool)
    bare = replace(rows, dtype=np.dtype(np.float64), labels=None)
    found = map_rows(bare, _test_block, state, 1 + rows.n_features)
    return labelled(rows.labels, found[:, 0].astype(bool)), labelled(rows.labels, found[:, 1:], "features")


def _test_block(state: _State, start: int, *columns: Any) -> Floats:
    """For each row, 1 if it is inside and 0 if outside, followed by its proof if proofs are wanted."""
    n, p = columns[0].shape[0], sum(part.shape[1] for part in columns)
    result = np.zeros((n, 1 + p * state.proofs))
    with one_blas_thread():
        for numbers, tile in even_tiles(columns, start, state.height):
            require_finite(tile[: len(numbers)], numbers)
            proofs = np.zeros_like(tile) if state.proofs else None
            inside = points_in_cone(tile, state.cone, exact=state.exact, tolerance=state.tolerance, proofs=proofs)
            part = slice(int(numbers[0]) - start, int(numbers[-1]) - start + 1)
            result[part, 0] = inside[: len(numbers)]
            if proofs is not None:
                result[part, 1:] = proofs[: len(numbers)]
    return result


def _check_planes(n_subproblems: int | str) -> int | None:
    if is_auto(n_subproblems):
        return None
    n_planes = check_integer("n_subproblems", n_subproblems, 1, auto=True)
    if n_planes > _MAX_PLANES:
        msg = f"n_subproblems={n_planes} is above {_MAX_PLANES:,}: to be certain of every row, use exact=True instead"
        raise InvalidParameterError(msg)
    return n_planes


def _check_tolerance(tolerance: Any, dtype: np.dtype[Any]) -> float:
    if tolerance is None:
        return max(_MIN_TOLERANCE, _ROUNDING_UNITS * float(np.finfo(dtype).eps))
    real = isinstance(tolerance, int | float | np.number) and not isinstance(tolerance, bool)
    if not real or not 0.0 <= tolerance < 1.0:
        msg = f"tolerance must be at least 0 and below 1, a share of a row's length; received {tolerance!r}"
        raise InvalidParameterError(msg)
    return float(tolerance)

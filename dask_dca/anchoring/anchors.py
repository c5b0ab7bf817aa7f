"""`find_anchors` and `anchor_votes`: the minimum conical hull problem on data of any size, at once or Delayed."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.anchoring.completion import incomplete_anchors
from dask_dca.anchoring.hyperplanes import Solver, check_solver, covering_anchors, hyperplane_anchors
from dask_dca.anchoring.library import library_anchors
from dask_dca.anchoring.literal import paper_anchors
from dask_dca.anchoring.parameters import AnchorResult, Settings, check_count, check_settings, open_beside
from dask_dca.anchoring.robust import check_known, robust_anchors, robust_votes
from dask_dca.anchoring.views import ColumnViews, check_views, paper_anchors_of_views
from dask_dca.engine.advice import in_terms_of
from dask_dca.engine.graphs import as_dask
from dask_dca.engine.passes import Run, optimized_with_arrays, step
from dask_dca.engine.process import numpy_defaults, one_blas_thread
from dask_dca.engine.rows import Rows, as_rows, mark_missing
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.weights import weigh_rows
from dask_dca.errors import UNWEIGHTED, InvalidInputError, InvalidParameterError, MissingEntriesError
from dask_dca.geometry.votes import VoteHistogram

_NO_RULE: Final = "method='paper' needs the number of anchors: pass an integer instead of 'auto'"


def n_subproblems(k: int, *, delta: float = 0.01, c: float = 1.0) -> int:
    """
    Number of sub-problems that find all anchors with probability 1 - delta.

    The paper's corollary to its Theorem on the probability bound: ceil(3 k / c * log(k / delta)).

    Parameters
    ----------
    k : int
        Number of anchors.
    delta : float, default 0.01
        Probability of failure, between 0 and 1.
    c : float, default 1.0
        Flatness: every anchor's probability of a vote exceeds twice that of a false one by at least c / k.

    Returns
    -------
    int
        Number of planes s.

    Raises
    ------
    InvalidParameterError
        k < 1, or delta or c out of range.

    Examples
    --------
    >>> n_subproblems(10)
    208
    """
    if not (k >= 1 and 0 < delta < 1 and 0 < c < math.inf):
        msg = f"need k >= 1, 0 < delta < 1 and c > 0; received k={k}, delta={delta}, c={c}"
        raise InvalidParameterError(msg)
    return math.ceil(3 * k / c * math.log(k / delta))


@numpy_defaults
@one_blas_thread()
def find_anchors(
    X: Any,
    n_anchors: int | str,
    *,
    Y: Any = None,
    known: Any = None,
    views: Any = None,
    method: str = "robust",
    n_subproblems: int | str = "auto",
    ensemble: str = "auto",
    dim: int = 2,
    solver: Solver = "plane",
    selection: str = "auto",
    missing: float | str | None = None,
    sample_weight: Any = None,
    random_state: Any = 0,
    compute: bool = True,
) -> AnchorResult:
    """
    Find k rows whose conical hull contains the data.

    Parameters
    ----------
    X : array-like of shape (n, p)
        Rows to be covered: NumPy, SciPy sparse, Dask array or DataFrame, xarray, zarr array or its path.
    n_anchors : int or "auto"
        Number of anchors k.
    Y : array-like of shape (m, p), optional
        Rows that the anchors are chosen from, X itself if None. With the robust method Y is a library of known rows,
        such as measured spectra, that fits in memory: anchors are those that the rows of X are mixtures of, at any
        brightness, and with or without an added constant. With the paper's method Y may be of any size.
    known : sequence of int or array-like of shape (r, p), optional
        Anchors that are known beforehand and come first in the result: row numbers of X (of Y if it is given), or rows,
        whose index is then -1. The others are found in addition (method "robust" only).
    views : sequence of three column groups, optional
        With views x1, x2, x3 of each row (column numbers, slices or masks) the rows to be covered are the moments
        E[x1 (x) x2] and E[<eta, x3> x1 (x) x2], eta random, and anchors are chosen from the outer products
        x1 (x) x2 of the rows: the paper's general problem for mixtures (method "paper" only). Neither is formed, only
        their coordinates on planes spanned by outer products.
    method : {"robust", "paper"}, default "robust"
        "robust" uses planes with a reference axis inside a robust subspace, and facility location among the candidates.
        "paper" is Algorithm 1 as printed: random planes in feature space, angles to an axis, the k rows with most
        votes.
    n_subproblems : int or "auto", default "auto"
        Number of planes s.
    ensemble : str, default "auto"
        Where directions are drawn from: "mixed", "row-space", "whitened", "gaussian", "sparse", "unit", "data". With
        views also "pairs": Gaussian planes in the space of a random set of feature pairs, as many as matrix completion
        needs, max(p1, p2) k ln(p1 + p2)^2; "unit" takes one pair for each axis.
    dim : int, default 2
        Dimension d of a sub-problem, up to 50: the reference axis and d - 1 random directions.
    solver : {"plane", "spa", "xray", "xray-dist", "xray-rand", "lp", "greedy"} or callable, default "plane"
        Solver of a sub-problem. "plane" is the closed form in two dimensions; the others, also alone in
        `dask_dca.geometry.solvers`, work in any. A function gets points (c, d), whose first coordinate is one, and
        the number of anchors, and returns indices of points. A vote is then a sub-problem that chose the row. With Y
        a sub-problem is MCH(X Phi, Y Phi) in d dimensions, which sees all rows: for up to 2**25 numbers, (n + m) s d.
        "lp" and "xray" solve it, or a function of points of X and of Y and the number of anchors.
    selection : {"auto", "candidates", "votes"}, default "auto"
        How k rows are chosen: by facility location among the candidates, or by votes.
    missing : float or "implicit", optional
        Further marker of missing entries besides NaN and masked entries, for the robust method: a number, or "implicit"
        for entries that sparse rows don't store.
    sample_weight : array-like of shape (n,), optional
        Weight of each row, NumPy or Dask, for the robust method: an integer has the effect of that many copies of the
        row, zero leaves it out.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the planes; None draws a new one each time.
    compute : bool, default True
        False computes nothing and returns the whole fit as one `dask.delayed.Delayed` of the result, to be inspected
        (`.visualize()`) or computed together with other graphs: graphs of the same array share the loading of its
        blocks, which stay in memory from the sample to the divide step. It is for data that fit into the memory of
        the cluster; `compute=True` reads the sampled blocks twice and keeps none.

    Returns
    -------
    AnchorResult
        Row numbers, votes and certificate; with `compute=False` a Delayed of it.

    Raises
    ------
    DCAError
        Unusable data or parameters; the message says which, and how to go on.

    Notes
    -----
    Zhou, Bilmes and Guestrin, Divide-and-Conquer Learning by Anchoring a Conical Hull, NIPS 2014, Algorithm 1.
    The same input gives bit-identical results for any chunking, number of workers, or worker death.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rays = rng.random((3, 8))
    >>> X = np.vstack([rng.dirichlet(np.ones(3), 50) @ rays, rays])
    >>> sorted(find_anchors(X, 3).indices.tolist())
    [50, 51, 52]
    >>> library = rng.random((30, 8))  # known rows, three of which are mixed
    >>> mixed = rng.dirichlet(np.ones(3), 500) @ library[[4, 9, 20]]
    >>> sorted(find_anchors(mixed, 3, Y=library).indices.tolist())
    [4, 9, 20]
    """
    settings = check_settings(method, n_subproblems, ensemble, selection, random_state, views=views is not None)
    if known is not None and (method != "robust" or solver != "plane"):
        msg = "known anchors need method='robust' with its own solver, 'plane'"
        raise InvalidParameterError(msg)
    dim, solver = check_solver(dim, solver, method, settings.ensemble, covers_other=Y is not None)
    rows = mark_missing(as_rows(X), missing)
    count = check_count(n_anchors, rows, "n_anchors")
    run = Run()
    if sample_weight is not None:
        if method != "robust" or solver != "plane" or Y is not None or not compute:
            msg = "sample_weight is for the rows of X by method='robust', without solver=, Y= or compute=False"
            raise InvalidParameterError(msg)
        rows = weigh_rows(rows, sample_weight, run)
    if not compute:
        rows, run = _lazy_rows(rows, count, views), Run(lazy=True)
    with in_terms_of(rows.form, rows.feature_names):
        if views is not None:
            return _anchors_of_views(rows, count, method, settings, views, Y)
        if solver != "plane" and Y is None:
            found = _attach_rows(hyperplane_anchors(rows, count, dim, solver, settings, run), rows, run)
        elif solver != "plane":
            found = _find_covering(rows, Y, count, dim, solver, settings, run)
        else:
            other = None if Y is None else open_beside(rows, Y, "Y")
            found = anchors_of(rows, count, method, settings, run, Y=other, known=known)
            if method != "robust" or other is None:
                found = _attach_rows(found, rows if other is None else other, run)
    return found if compute else optimized_with_arrays(found, "anchors")


def _find_covering(
    rows: Rows, Y: Any, n_anchors: int | None, dim: int, solver: Solver, settings: Settings, run: Run
) -> AnchorResult:
    """Find rows of Y that cover X, by a solver other than 'plane'."""
    if n_anchors is None:
        raise InvalidParameterError(_NO_RULE)
    others = open_beside(rows, Y, "Y")
    others = as_dask(others) if run.lazy else others
    return _attach_rows(covering_anchors(rows, others, n_anchors, dim, solver, settings, run), others, run)


def _attach_rows(found: AnchorResult, source: Rows, run: Run, *, nonnegative: bool = False) -> AnchorResult:
    """Add the rows of the anchors to the result; they are read if no pass returned them."""
    if not run.lazy and len(found.rows) == len(found.indices):
        return found
    numbers = step(run, "anchors", _indices_without_rows, found)
    return step(run, "anchors", _append_rows, found, fetch_rows(source, numbers, run, nonnegative=nonnegative))


def _indices_without_rows(found: AnchorResult) -> NDArray[np.int64]:
    """Indices of the anchors whose rows are not in the result yet."""
    return found.indices[len(found.rows) :]


def _append_rows(found: AnchorResult, rows: NDArray[np.float64]) -> AnchorResult:
    return replace(found, rows=np.vstack([found.rows, rows]) if len(found.rows) else rows)


@numpy_defaults
def anchor_votes(
    X: Any,
    n_anchors: int,
    *,
    n_subproblems: int | str = "auto",
    ensemble: str = "auto",
    random_state: Any = 0,
    compute: bool = True,
) -> VoteHistogram:
    """
    Count the votes of random planes for the rows that are extreme in them: the divide and conquer steps alone.

    `find_anchors` selects its anchors from this histogram: each sub-problem votes for the two rows of extreme angle in
    its plane, and votes of groups of sub-problems are merged in a tree.

    Parameters
    ----------
    X : array-like of shape (n, p)
        Rows, in any form that `find_anchors` takes.
    n_anchors : int
        Number of anchors k, which sets the dimension of the subspace, and the number of planes.
    n_subproblems, ensemble, random_state : int or str, str, int
        As `find_anchors` takes them.
    compute : bool, default True
        False returns a `dask.delayed.Delayed` of the histogram, as `find_anchors` does.

    Returns
    -------
    VoteHistogram
        Rows with a vote, their votes, and their positions in the subspace.

    Raises
    ------
    DCAError
        Unusable data or parameters; the message says which, and how to go on.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rays = rng.random((3, 8))
    >>> X = np.vstack([rng.dirichlet(np.ones(3), 50) @ rays, rays])
    >>> found = anchor_votes(X, 3)
    >>> found.rows.tolist(), int(found.votes.sum()) == 2 * found.n_subproblems
    ([50, 51, 52], True)
    """
    settings = check_settings("robust", n_subproblems, ensemble, "auto", random_state)
    rows = as_rows(X)
    count = check_count(n_anchors, rows, "n_anchors")
    if count is None:
        msg = "votes need a number of anchors, which sets the planes: pass an integer instead of 'auto'"
        raise InvalidParameterError(msg)
    run = Run(lazy=not compute)
    with one_blas_thread(), in_terms_of(rows.form, rows.feature_names):
        voted = robust_votes(rows if compute else as_dask(rows), count, settings, run)
    return voted.found.votes if compute else optimized_with_arrays(voted.found.votes, "votes")


def _lazy_rows(rows: Rows, n_anchors: int | None, views: Any) -> Rows:
    """Chunked rows for a graph that is not computed yet; refuses what needs several graphs in turn."""
    if n_anchors is None or views is not None:
        what = "n_anchors='auto'" if n_anchors is None else "views"
        msg = f"compute=False builds one graph, and {what} takes several in turn; use compute=True"
        raise InvalidParameterError(msg)
    return as_dask(rows)


def anchors_of(
    rows: Rows,
    n_anchors: int | None,
    method: str,
    settings: Settings,
    run: Run,
    *,
    Y: Rows | None = None,
    known: Any = None,
    nonnegative: bool = False,
) -> AnchorResult:
    """Find anchors with checked parameters, as models do."""
    if method == "robust":
        with one_blas_thread():  # the last bits of eigenvectors on the driver, too, depend on the number of threads
            return _robust(rows, n_anchors, settings, run, Y, known, nonnegative=nonnegative)
    if n_anchors is None:
        raise InvalidParameterError(_NO_RULE)

    return paper_anchors(rows, n_anchors, settings, run, Y=Y, nonnegative=nonnegative)


def _robust(
    rows: Rows,
    n_anchors: int | None,
    settings: Settings,
    run: Run,
    Y: Rows | None,
    known: Any,
    *,
    nonnegative: bool,
) -> AnchorResult:
    """Find anchors by the default method: with a library Y, known anchors, or missing entries."""
    source = rows if Y is None else Y
    first = None if known is None else check_known(known, source, n_anchors, run, nonnegative=nonnegative)
    if Y is not None:
        return library_anchors(rows, Y, n_anchors, settings, run, first)
    try:
        found = robust_anchors(rows, n_anchors, settings, run, nonnegative=nonnegative, known=first)
        return found if known is None else _attach_rows(found, rows, run, nonnegative=nonnegative)
    except MissingEntriesError:
        if known is not None:
            raise
        if rows.weights is not None:
            raise InvalidInputError(UNWEIGHTED) from None
    if rows.kind != "memory":
        gc.collect()  # the error refers to a sample on the cluster, whose tasks would go on and fail block by block
    return incomplete_anchors(rows, n_anchors, settings, run, nonnegative=nonnegative)


def _anchors_of_views(
    rows: Rows, n_anchors: int | None, method: str, settings: Settings, views: Any, Y: Any
) -> AnchorResult:
    if method != "paper" or Y is not None or n_anchors is None:
        msg = "views need method='paper', a number of anchors, and no Y; for a mixture model use GaussianMixture"
        raise InvalidParameterError(msg)
    groups = ColumnViews(check_views(views, rows.n_features))
    return paper_anchors_of_views(rows, groups, n_anchors, settings, Run())

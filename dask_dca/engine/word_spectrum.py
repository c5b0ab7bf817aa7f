"""Leading eigenvectors of the words' scaled co-occurrence.

Where the documents are a sample that the workers hold, all of it is one graph: blocks of words x topics stay on the
workers between products, and only the eigenvectors asked for come back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.computing import computed, try_with
from dask_dca.engine.cooccurrence import Products, product_pass
from dask_dca.engine.passes import run_pass, step
from dask_dca.kernels.krylov import block_krylov

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.cooccurrence import Columns, Cooccurrence
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["leading_pairs"]


@dataclass(frozen=True)
class _Scaled:
    """What products of the scaled co-occurrence need besides the documents."""

    products: Products
    scale: Floats  # (V, 1)

    def columns(self, block: Floats) -> Columns:
        return self.products.columns(self.scale * block)

    def product(self, block: Floats, sums: Floats) -> Floats:
        return self.scale * self.products.finished(self.scale * block, sums)


def leading_pairs(operator: Cooccurrence, scale: Floats, width: int, most: int, seed: int) -> tuple[Floats, Floats]:
    """
    Find eigenpairs of diag(h) Q diag(h) by a block Krylov space.

    Parameters
    ----------
    operator : Cooccurrence
        The co-occurrence Q.
    scale : ndarray of float64, shape (V,)
        In the method's description h.
    width : int
        Columns of a block.
    most : int
        Eigenvectors that are wanted.
    seed : int
        Seed of the first block.

    Returns
    -------
    values : ndarray of float64, shape (m,)
        Eigenvalues, the greatest first.
    vectors : ndarray of float64, shape (V, min(m, most))
        The first eigenvectors.
    """
    scaled, rows, run = _Scaled(operator.products, scale[:, None]), operator.rows, operator.run
    if not operator.kept:
        return _pairs(rows, scaled, width, most, seed, run)

    lazy = replace(run, lazy=True)
    return try_with(
        scaled, lambda held: _computed(_pairs(rows, held, width, most, seed, lazy), run), rows.source, "spectrum", run
    )


def _computed(pairs: Any, run: Run) -> tuple[Floats, Floats]:
    values, vectors = computed(pairs, "spectrum", run)
    return values, vectors


def _pairs(rows: Rows, scaled: _Scaled, width: int, most: int, seed: int, run: Run) -> Any:
    """Find the pairs now, or as a graph in a lazy run: then `scaled` may have been sent before."""

    def multiply(block: Floats) -> Floats:
        state = step(run, "columns", _Scaled.columns, scaled, block)
        return step(run, "product", _Scaled.product, scaled, block, run_pass(rows, product_pass(), state, run))

    found = block_krylov(multiply, rows.n_features, width, seed, do=partial(step, run, "krylov"))
    return step(run, "spectrum", _leading, found, most)


def _leading(found: tuple[Floats, Floats], most: int) -> tuple[Floats, Floats]:
    values, vectors = found
    return values, np.ascontiguousarray(vectors[:, :most])

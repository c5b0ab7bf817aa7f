"""The passes over symbols: counts of symbols and of successive pairs; and the emissions of states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import Rows
from dask_dca.engine.sequences import pair_mask
from dask_dca.engine.tiles import require_finite, tiles
from dask_dca.engine.types import Halo, Window, add_parts
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.arrays import Floats, Numbers

_MAX_SYMBOL: Final = 2.0**53  # from here on not every integer is exact as float64


def encoder(X: str) -> str:
    """Return Python code that encodes values of any kind as integers; X: the code of these values."""
    return f"sklearn.preprocessing.OrdinalEncoder().fit_transform(numpy.reshape({X}, (-1, 1)))"


def as_symbols(tile: Floats, numbers: Numbers | None = None, n_symbols: int | None = None) -> Numbers:
    """Convert a tile (n, 1) to symbols (n,), integers from zero on.

    numbers (n,): row numbers, for errors; n_symbols: number of symbols.
    Raises InvalidInputError: an entry is not a valid symbol.
    """
    values = tile[:, 0]
    wrong = (values != np.rint(values)) | (values < 0.0) | (values >= (_MAX_SYMBOL if n_symbols is None else n_symbols))
    if wrong.any():
        i = int(wrong.argmax())
        where = "" if numbers is None else f" in row {numbers[i]}"
        most = "" if n_symbols is None else f" below n_features={n_symbols}"
        msg = f"symbols are integers from 0 on{most}; received {values[i]:g}{where}; number them: pass {encoder('X')}"
        raise InvalidInputError(msg)
    return values.astype(np.int64)


@dataclass(frozen=True)
class CategoricalEmission:
    """Log emission probabilities (k, v) of the symbols in the states."""

    logs: Floats
    origins: ClassVar[None] = None

    def __call__(self, tile: Floats) -> Floats:
        """Look up the log probabilities (n, k) of a tile (n, 1)."""
        return np.ascontiguousarray(self.logs[:, as_symbols(tile, None, self.logs.shape[1])].T)

    def log_densities(self, features: Floats) -> Floats:
        """Look up the log probabilities (k, n) of symbols (1, n)."""
        return self.logs[:, as_symbols(features.T, None, self.logs.shape[1])]

    def sums(self, weights: Floats, features: Floats) -> Floats:
        """Sum weights by symbol.

        weights (k, n); features (1, n): symbols. Returns counts (k,), and counts by symbol (k, v), in one vector.
        """
        (_, v), symbols = self.logs.shape, as_symbols(features.T)
        by_symbol = [np.bincount(symbols, own, minlength=v) for own in weights]
        return np.concatenate([weights.sum(axis=1), *by_symbol])

    def scales(self) -> Floats:
        """Return the scales of these sums, which are all counts."""
        return np.ones(self.logs.shape[0] * (1 + self.logs.shape[1]))


@dataclass(frozen=True)
class PlainSymbols:
    """The features of symbols, which are the symbols themselves. A checkpoint identifies it by its class."""

    def __call__(self, tile: Floats) -> Floats:
        """Return a contiguous tile."""
        return np.ascontiguousarray(tile)


def greatest_symbol(rows: Rows, run: Run) -> int:
    """Check all symbols, and return the greatest."""
    job: Pass[int] = Pass("symbols", _greatest_block, max)
    return run_pass(rows, job, None, run)


def _greatest_block(state: None, start: int, *columns: Any) -> int:
    found = 0
    for numbers, tile in tiles(columns, start, copy=False):
        require_finite(tile, numbers)
        found = max(found, int(as_symbols(tile, numbers).max(initial=0)))
    return found


def count_pairs(rows: Rows, edges: Numbers, n_symbols: int, run: Run) -> Numbers:
    """Count pairs of successive symbols within sequences.

    edges (m + 1,): ends of sequences. Returns (v, v), from row to column.
    """
    job: Pass[Numbers] = Pass("pairs", _pair_block, add_parts, Halo(after=1))
    return run_pass(rows, job, (edges, n_symbols), run)


def _pair_block(state: tuple[Numbers, int], window: Window, *columns: Sequence[Any]) -> Numbers:
    edges, v = state
    seen = [as_symbols(tile, numbers, v) for numbers, tile in tiles(columns, window.first, copy=False)]
    symbols = np.concatenate([np.zeros(0, dtype=np.int64), *seen])[window.start - window.first :]
    paired = pair_mask(edges, window.start, window.stop, 1)
    first = symbols[: len(paired)][paired]
    second = symbols[1 : len(paired) + 1][paired[: max(len(symbols) - 1, 0)]] if len(symbols) > 1 else first[:0]
    return np.bincount(first * v + second, minlength=v * v).reshape(v, v)

"""Log densities of rows under a mixture, blockwise: their sum over all rows, labels and posterior probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import Rows
from dask_dca.engine.tiles import even_tiles, require_squares
from dask_dca.engine.types import add_parts
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import Total, plain_total
from dask_dca.models.gaussians import Gaussians, log_densities, prepare_gaussians
from dask_dca.models.incomplete_gaussians import observed_log_densities
from dask_dca.models.mixture.e_step import LOG_UNIT
from dask_dca.models.mixture.em import normalise
from dask_dca.models.mixture.family import CovarianceSubspace


@dataclass(frozen=True)
class Densities:
    """A mixture prepared for blocks of rows.

    gaussians: components in feature space, or in the subspace if there is one; log_weights (k,): logarithms of the
    components' weights; height: of the tiles.
    """

    gaussians: Gaussians
    log_weights: Floats
    height: int
    subspace: CovarianceSubspace | None = None


def log_likelihood(rows: Rows, densities: Densities, run: Run) -> float:
    """Sum the log densities of all rows, bit for bit the same for any chunking."""
    return float(run_pass(rows, Pass("score", _score_block, add_parts), densities, run).value())


def _score_block(densities: Densities, start: int, *columns: Any) -> Total:
    found = [plain_total(np.zeros(0), LOG_UNIT)]
    for numbers, joint in joint_blocks(densities, start, columns):
        found.append(plain_total(normalise(joint)[1][: len(numbers)], LOG_UNIT))
    return add_parts(found)


def label_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Find the most probable component (n, 1) of each row of a block that starts at row number `start`."""
    joints = joint_blocks(densities, start, columns)
    found = [joint[: len(numbers)].argmax(axis=1) for numbers, joint in joints]
    return np.concatenate([np.zeros(0), *found])[:, None]


def posterior_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Find the probabilities (n, k) of the components for each row of a block."""
    joints = joint_blocks(densities, start, columns)
    found = [normalise(joint)[0][: len(numbers)] for numbers, joint in joints]
    return np.concatenate([np.zeros((0, len(densities.log_weights))), *found])


def density_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Evaluate the log density (n, 1) of each row of a block."""
    joints = joint_blocks(densities, start, columns)
    found = [normalise(joint)[1][: len(numbers)] for numbers, joint in joints]
    return np.concatenate([np.zeros(0), *found])[:, None]


def joint_blocks(densities: Densities, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Floats]]:
    """Evaluate a mixture on the tiles of a block, by the observed entries where others are missing.

    start: row number of the block's first row. Yields numbers (n,): row numbers; joint (h, k): log weight plus log
    density, with padding beyond the first n rows.
    """
    for numbers, tile in even_tiles(columns, start, densities.height):
        require_squares(tile, numbers, missing=True)
        if np.isnan(tile).any():
            yield numbers, observed_joint_log_densities(densities, tile)
            continue
        _, logs, residual_logs = tile_log_densities(densities, tile)
        logs += densities.log_weights + residual_logs
        yield numbers, logs


def tile_log_densities(densities: Densities, tile: Floats) -> tuple[Floats, Floats, Floats]:
    """Rows of a tile, or their coordinates in the subspace; log densities (h, k); those of residuals (h, 1)."""
    places, residual_logs = (tile, np.zeros(1)) if densities.subspace is None else densities.subspace.split(tile)
    return places, log_densities(densities.gaussians, places), residual_logs[:, None]


def observed_joint_log_densities(densities: Densities, tile: Floats) -> Floats:
    """Evaluate log weight plus log density (n, k) of the observed entries of rows.

    tile (n, p): NaN where an entry is missing. Rows without any observed entry have density one.
    """
    if densities.subspace is None:
        return observed_log_densities(densities.gaussians, tile) + densities.log_weights
    incomplete = np.asarray(np.isnan(tile).any(axis=1))
    found = np.empty((len(tile), len(densities.log_weights)))
    found[incomplete] = observed_log_densities(
        _in_all_features(densities.gaussians, densities.subspace), tile[incomplete]
    )
    places, residual_logs = densities.subspace.split(np.where(incomplete[:, None], densities.subspace.origin, tile))
    found[~incomplete] = (observed_log_densities(densities.gaussians, places) + residual_logs[:, None])[~incomplete]
    return found + densities.log_weights


def _in_all_features(inside: Gaussians, space: CovarianceSubspace) -> Gaussians:
    """Components in a subspace as components of all features, with full covariances.

    Student's t components have heavy tails in all directions then, not in those of the subspace only.
    """
    factors = inside.precisions_cholesky
    within = np.linalg.inv(factors @ factors.swapaxes(1, 2))
    across = space.noise * (np.eye(len(space.axes)) - space.axes @ space.axes.T)
    covariances = space.axes @ within @ space.axes.T + across
    means = space.to_features(inside.means + inside.centre)
    return prepare_gaussians(means, covariances, "full", space.origin, inside.degrees)

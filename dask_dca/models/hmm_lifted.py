"""Starts for states that differ in their covariances alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.held import call_each
from dask_dca.engine.markov_passes import Statistics
from dask_dca.kernels.discriminant import discriminant_coordinates
from dask_dca.kernels.gaussian_moments import moments_of_parts
from dask_dca.kernels.labels import label_counts
from dask_dca.kernels.lifted import lifted_features, moving_average
from dask_dca.models.hmm_conquer import anchor_means
from dask_dca.models.hmm_frames import moments_in_memory
from dask_dca.models.hmm_refine import maximise
from dask_dca.models.hmm_start import fit_coordinates, signed_directions, tails

if TYPE_CHECKING:
    from dask_dca.engine.passes import Run
    from dask_dca.models.hmm_frames import Coordinates, Frame, Stretches
    from dask_dca.models.hmm_prepared import HMMSettings, Prepared
    from dask_dca.models.hmm_refine import HiddenMarkov

__all__ = ["lifted_starts"]

_REACHES: Final = (0, 4, 12)  # frames on either side over which lifted features are averaged
_LIFTED: Final = 8  # principal coordinates that are lifted, with all their products
_LIFTED_FEATURES: Final = 32  # features that are lifted themselves where covariances are diagonal: squares only


def lifted_starts(ready: Prepared, k: int, settings: HMMSettings, run: Run) -> list[HiddenMarkov]:
    """
    Start from lifted features of a few coordinates, averaged over time.

    Parameters
    ----------
    ready, k, settings, run : object
        What all starts share.

    Returns
    -------
    list of HiddenMarkov
        None where covariances are shared, or data are wide.
    """
    if settings.covariance_type == "tied" or ready.coordinates.principal is None or k == 1:
        return []
    each = [(ready.frame, ready.coordinates, reach, k, settings) for reach in _REACHES]
    return call_each(run, "lifted", _lifted_start, ready.sample.held, each)


def _lifted_start(
    sample: Stretches, frame: Frame, coordinates: Coordinates, reach: int, k: int, settings: HMMSettings
) -> HiddenMarkov:
    edges, kind, centred = sample.edges, settings.covariance_type, sample.frames - frame.centre
    assert coordinates.principal is not None
    few = centred @ coordinates.principal[:, :_LIFTED]
    if kind != "full" and centred.shape[1] <= _LIFTED_FEATURES:
        few = centred / np.where(frame.spreads > 0.0, frame.spreads, 1.0)
    features = lifted_features(few, products=kind == "full")
    seen = moving_average(features, edges, reach) if reach else features
    axes = discriminant_coordinates(moments_in_memory(seen, edges), max(1, min(k - 1, seen.shape[1])))[0]
    lifted = np.ascontiguousarray((seen - seen.mean(axis=0)) @ axes)
    directions = signed_directions(k, lifted.shape[1], settings.n_directions, settings.seed)
    anchors = anchor_means(tails(lifted, edges, directions, k), "both", "simplex", k)
    labels = fit_coordinates(lifted, edges, anchors).labels(lifted)
    moments = moments_of_parts(np.eye(k)[labels], centred, kind, frame.floors)
    starts, transitions = label_counts(labels, edges, k)
    nobody = np.zeros(k, dtype=np.int64)
    found = Statistics(0.0, starts, transitions, moments.counts, moments.first, moments.second, nobody, moments.origins)
    return maximise(found, frame, kind)

"""A start that the user gives, in the place of what is learnt on the sample."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.errors import InvalidParameterError
from dask_dca.models.gaussians import SUBSPACE
from dask_dca.models.kmeans import squared_distances
from dask_dca.models.mixture.cleaning import resolution
from dask_dca.models.mixture.em import WeightedRows, mixture_of_labels
from dask_dca.models.mixture.family import Shrinkage
from dask_dca.models.mixture.learning import Learnt, MixtureStart
from dask_dca.models.mixture.start import coordinates_of, look_along
from dask_dca.models.starting import check_covariances, one_of_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dask_dca.models.mixture.learning import RowSample
    from dask_dca.models.mixture.settings import MixtureSettings

    Floats = NDArray[np.float64]

__all__ = ["WORDS", "learn_given", "with_form"]

WORDS: Final = {"weights": "weights_", "means": "means_", "covariances": "covariances_"}
_WIDEST: Final = 128  # features up to which covariances are full where nothing says what they are
_ROUNDING: Final = 1e-6


def with_form(settings: MixtureSettings, init: Any, given: Mapping[str, Floats]) -> MixtureSettings:
    """Decide on the form of covariances that "auto" stands for with a start.

    init: what the user gave; given: its parameters. Returns the settings with the form of the start; full up to 128
    features, diagonal beyond, where it has no covariances.
    Raises InvalidParameterError: there are no means, or the start's covariances are of another form.
    """
    if "means_" not in given:
        msg = "a start of GaussianMixture needs means; pass init=dict(means=...), and weights and covariances if known"
        raise InvalidParameterError(msg)
    form, own = settings.covariance_type, getattr(init, "covariance_type_", None)
    if own is not None and (own == SUBSPACE or form not in ("auto", own)):
        msg = (
            f"the covariances of init are {own!r}, and can't start covariance_type={form!r}; "
            "pass init=dict(weights=init.weights_, means=init.means_)"
        )
        raise InvalidParameterError(msg)
    if form != "auto":
        return settings
    k, p = given["means_"].shape if given["means_"].ndim == 2 else (0, 0)
    forms = {(k, p, p): "full", (p, p): "tied", (k,): "spherical", (): "tied-spherical", (k, p): "diag"}
    if "covariances_" in given:
        chosen = own or forms.get(given["covariances_"].shape, "diag")
    else:
        chosen = "full" if p <= _WIDEST else "diag"
    return replace(settings, covariance_type=chosen)


def learn_given(sample: RowSample, given: Mapping[str, Floats], settings: MixtureSettings) -> Learnt:
    """Take what the user gives for a start; the rest from the rows of the sample nearest to each mean.

    given: parameters by the names of attributes, means among them; settings: their form is decided. Nothing is drawn
    together, and no row is noise.
    """
    rows, form = sample.rows, settings.covariance_type
    k, p = len(given["means_"]), rows.shape[1]
    means = one_of_shapes("means", given["means_"], (k, p)) - sample.centre
    floor = resolution(rows) if settings.reg_covar is None else np.full(p, settings.reg_covar)
    shrinkage = Shrinkage(floor, 0.0, 0.0, plain=True)
    scale = np.where(rows.std(axis=0) > 0.0, rows.std(axis=0), 1.0)
    labels = squared_distances(rows / scale, means / scale).argmin(axis=1)
    mixture = mixture_of_labels(WeightedRows(rows, np.ones(len(rows))), labels, k, form, shrinkage)
    weights = one_of_shapes("weights", given.get("weights_", mixture.weights + 1.0 / len(rows)), (k,))
    if not (weights > 0.0).all() or ("weights_" in given and abs(weights.sum() - 1.0) > _ROUNDING):
        msg = f"weights of init must be positive, and sum to one; received {weights}"
        raise InvalidParameterError(msg)
    covariances = mixture.covariances
    if "covariances_" in given:
        covariances = check_covariances(given["covariances_"], form, k, p)
    start = replace(mixture, weights=weights / weights.sum(), means=means, covariances=covariances)
    coordinates = next(coordinates_of(rows, floor, k))
    axes = look_along(rows @ coordinates, coordinates, k, settings.anchoring)
    nobody = np.zeros(0, dtype=np.intp)
    return Learnt(MixtureStart(start, shrinkage, np.ones(k)), nobody, coordinates, axes, np.zeros((0, 2)))

"""Checks of the parameters that only mixtures have, starts given by `init`, and steps of `partial_fit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.parameters import Settings, check_integer, check_number, check_option, is_auto
from dask_dca.anchoring.views import check_views
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import Rows
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.models.em import check_covariances, check_shape, copy_numbers, read_init
from dask_dca.models.fitted import SUM_TOL
from dask_dca.models.gaussians import (
    COVARIANCE_TYPES,
    SUBSPACE,
    GaussianMoments,
    prepare_gaussians,
    shifted_moments,
    variances_of,
)
from dask_dca.models.kmeans import squared_distances
from dask_dca.models.mixture.densities import Densities
from dask_dca.models.mixture.em import WeightedRows, mixture_of_labels
from dask_dca.models.mixture.family import Shrinkage, as_full, maximization
from dask_dca.models.mixture.learning import (
    MAX_FULL_FEATURES,
    MixtureStart,
    RowSample,
    SampleFit,
    draw_directions,
    principal_coordinates,
    rounding_variances,
)
from dask_dca.models.mixture.passes import MixtureStatistics, e_step_pass

if TYPE_CHECKING:
    from dask_dca.models.mixture.fit import MixtureFit

    Sums = dict[str, Floats]

FORMS: Final = ("auto", *COVARIANCE_TYPES, "tied-spherical")  # values of covariance_type
TAILS: Final = ("auto", "normal", "heavy")  # values of tails
_AUTO_MAX_ITER: Final = {"robust": 5, "paper": 0}  # max_iter="auto", by method; the paper's has no refinement
_MAX_MATRIX_FEATURES: Final = 2000  # maximum number of features for which p x p covariances are formed
_INIT_KEYS: Final = {"weights": "weights_", "means": "means_", "covariances": "covariances_"}  # and their attributes
_INIT_PARAMETERS: Final = {"weights_init": "weights_", "means_init": "means_", "precisions_init": "precisions_"}


@dataclass(frozen=True)
class MixtureSettings:
    """Checked parameters of a mixture."""

    anchoring: Settings
    covariance_type: str
    views: tuple[Numbers, Numbers, Numbers] | None
    max_iter: int
    tol: float
    reg_covar: float | None  # None: from the data, with pulls
    tails: str = "normal"


def check_mixture(model: Any, rows: Rows, anchoring: Settings, n_components: int | None) -> MixtureSettings:
    """Check the parameters that only mixtures have; anchoring, n_components (None for "auto"): checked already.

    Raises InvalidParameterError: one of them is unknown or out of range, or doesn't fit the data.
    """
    form, p = check_option("covariance_type", model.covariance_type, FORMS), rows.n_features
    if form in ("full", "tied") and p > _MAX_MATRIX_FEATURES:
        msg = (
            f"covariance_type={form!r} needs matrices of {p} x {p} numbers, "
            f"which is for up to {_MAX_MATRIX_FEATURES:,} features; use covariance_type='diag'"
        )
        raise InvalidParameterError(msg)
    tails = check_option("tails", model.tails, TAILS)
    floor = None if is_auto(model.reg_covar) else check_number("reg_covar", model.reg_covar, auto=True)
    max_iter = _AUTO_MAX_ITER[model.method] if is_auto(model.max_iter) else model.max_iter
    return MixtureSettings(
        anchoring,
        form,
        None if model.views is None else _checked_views(rows, model.views, n_components),
        check_integer("max_iter", max_iter, 0, auto=True),
        check_number("tol", model.tol),
        floor,
        _checked_tails(tails, form, model.method, floor),
    )


def _checked_tails(tails: str, covariance_type: str, method: str, floor: float | None) -> str:
    """Check `tails`; "auto" stays only where the form of the covariances is chosen, too."""
    if tails == "auto":
        return "auto" if covariance_type == "auto" and method == "robust" and floor is None else "normal"
    if tails == "heavy" and (covariance_type == "tied" or method == "paper" or floor is not None):
        msg = "tails='heavy' needs method='robust', reg_covar='auto', and another covariance_type than 'tied'"
        raise InvalidParameterError(msg)
    return tails


def _checked_views(rows: Rows, views: Any, n_components: int | None) -> tuple[Numbers, Numbers, Numbers]:
    """Column numbers of the views, each of which must have at least as many features as there are components."""
    groups = check_views(_views_by_number(rows, views), rows.n_features)
    narrowest = min(len(group) for group in groups)
    if n_components is not None and narrowest < n_components:
        msg = (
            f"a view of {narrowest} features can't tell n_components={n_components} components apart; use wider "
            "views, or views=None"
        )
        raise InvalidParameterError(msg)
    return groups


def _views_by_number(rows: Rows, views: Any) -> Any:
    """Replace names of columns in views by column numbers."""
    if not isinstance(views, list | tuple | np.ndarray) or not getattr(views, "ndim", 1):
        return views
    return [[_column_number(rows, name) for name in view] if _has_names(view) else view for view in views]


def _has_names(view: Any) -> bool:
    return isinstance(view, list | tuple | np.ndarray) and any(isinstance(name, str) for name in view)


def _column_number(rows: Rows, name: Any) -> int:
    known = [] if rows.feature_names is None else list(rows.feature_names)
    if name not in known:
        msg = f"views name the feature {name!r}, which X does not have; its features are {known[:5]}"
        raise InvalidParameterError(msg)
    return known.index(name)


def start_of_mixture(model: Any) -> dict[str, Floats]:
    """Read the start that a user gave, by attribute: from `init`, the last fit, or scikit-learn's parameters.

    Raises InvalidParameterError: two of them are given, or one is not a valid start.
    """
    given, named = read_init(model, _INIT_KEYS), {name: getattr(model, name) for name in _INIT_PARAMETERS}
    named = {_INIT_PARAMETERS[name]: copy_numbers(name, value) for name, value in named.items() if value is not None}
    if not named or model._start() is not model.init:  # warm_start: the last fit
        return given
    if given:
        msg = f"init and {', '.join(_INIT_PARAMETERS)} both give a start: pass init alone, or the others"
        raise InvalidParameterError(msg)
    return named


def with_form(settings: MixtureSettings, init: Any, given: Mapping[str, Floats]) -> MixtureSettings:
    """Replace covariance_type="auto" by the form of a given start: "full" up to 128 features, if it has no covariances.

    init: the model or dict that was given; given: its parameters by attribute.
    Raises InvalidParameterError: there are no means, or the start's covariances are of another form.
    """
    if "means_" not in given:
        msg = "a start of GaussianMixture needs means; pass means_init, or init=dict(means=...)"
        raise InvalidParameterError(msg)
    if settings.tails == "heavy":
        msg = "tails='heavy' are chosen on anchored fits; leave init out, or use tails='normal'"
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
    spread = given.get("covariances_", given.get("precisions_"))
    chosen = "full" if p <= MAX_FULL_FEATURES else "diag"
    if spread is not None:
        chosen = own or forms.get(spread.shape, "diag")
    return replace(settings, covariance_type=chosen)


def start_from_parameters(sample: RowSample, given: Mapping[str, Floats], settings: MixtureSettings) -> SampleFit:
    """Make a start of given parameters; those that are missing are estimated from the sample's rows nearest each mean.

    given: parameters by attribute, means among them; settings: with a definite form of covariances. Nothing is shrunk,
    and no row is noise.
    """
    rows, form = sample.rows, settings.covariance_type
    k, p = len(given["means_"]), rows.shape[1]
    means = check_shape("means", given["means_"], (k, p)) - sample.centre
    floor = rounding_variances(rows) if settings.reg_covar is None else np.full(p, settings.reg_covar)
    shrinkage = Shrinkage(floor, 0.0, 0.0, plain=True)
    scale = np.where(rows.std(axis=0) > 0.0, rows.std(axis=0), 1.0)
    labels = squared_distances(rows / scale, means / scale).argmin(axis=1)
    mixture = mixture_of_labels(WeightedRows(rows, np.ones(len(rows))), labels, k, form, shrinkage)
    weights = check_shape("weights", given.get("weights_", mixture.weights + 1.0 / len(rows)), (k,))
    if not (weights > 0.0).all() or ("weights_" in given and abs(weights.sum() - 1.0) > SUM_TOL):
        msg = f"weights of init must be positive, and sum to one; received {weights}"
        raise InvalidParameterError(msg)
    covariances = mixture.covariances
    if "covariances_" in given:
        covariances = check_covariances(given["covariances_"], form, k, p, "covariances")
    elif "precisions_" in given:
        precisions = check_covariances(given["precisions_"], form, k, p, "precisions_init")
        covariances = np.asarray(np.linalg.inv(precisions) if form in ("full", "tied") else 1.0 / precisions)
    start = replace(mixture, weights=weights / weights.sum(), means=means, covariances=covariances)
    coordinates = next(principal_coordinates(rows, floor, k))
    axes = draw_directions(rows @ coordinates, coordinates, k, settings.anchoring)
    no_rows = np.zeros(0, dtype=np.intp)
    return SampleFit(MixtureStart(start, shrinkage, np.ones(k)), no_rows, coordinates, axes, np.zeros((0, 2)))


def _inner_form(model: Any) -> str:
    return "full" if model.covariance_type_ == SUBSPACE else str(model.covariance_type_)


def _stream_sums(moments: GaussianMoments, origins: Floats, form: str) -> Sums:
    found = shifted_moments(moments, origins, form)
    return {"counts": found.counts, "sums": found.first, "products": found.second}


def begin_mixture(model: Any, found: MixtureFit) -> Sums:
    """Prepare a fitted mixture for `partial_fit`; return the sums of its last pass, about its means."""
    start, mixture, moments = found.start, found.refined.model, found.refined.seen.moments
    form = _inner_form(model)
    if form != mixture.covariance_type:  # "diag" in the subspace is stored as full
        mixture = as_full(mixture)
        moments = replace(moments, second=moments.second[:, :, None] * np.eye(moments.second.shape[1]))
    model.stream_origins_, model.stream_floor_ = model.means_.copy(), start.shrinkage.floor
    model.stream_evidence_, model.stream_least_ = start.evidence, float(start.noise_threshold)
    return _stream_sums(moments, mixture.means, form)


def see_batch(model: Any, rows: Rows, densities: Densities, run: Run) -> tuple[Sums, MixtureStatistics]:
    """Run the E-step over a batch; return its sums about the stream's origins, and the pass's statistics."""
    form, space, gaussians = _inner_form(model), densities.subspace, densities.gaussians
    origins = model.stream_origins_ - (gaussians.centre if space is None else 0.0)
    if space is not None:
        origins = (origins - space.origin) @ space.axes - gaussians.centre
    spread = np.broadcast_to(variances_of(model.covariances_, form), gaussians.means.shape)
    middle = model.weights_ @ gaussians.means
    deviations = np.sqrt(model.weights_ @ (spread + (gaussians.means - middle) ** 2))
    seen = e_step_pass(rows, densities, deviations, run, model.stream_least_)
    return _stream_sums(seen.moments, origins, form), seen


def step_mixture(model: Any, sums: Sums) -> None:
    """Run the M-step on the sums of a stream, and set the parameters of the mixture."""
    form, space = _inner_form(model), model._subspace()
    origins, means = model.stream_origins_, model.means_
    if space is not None:
        origins, means = ((points - space.origin) @ space.axes for points in (origins, means))
    pull, common_pull = model.pulls_.tolist()
    shrinkage = Shrinkage(
        model.stream_floor_,
        pull,
        common_pull,
        model.shrinkage_target_,
        plain=model.reg_covar != "auto" or pull == 0.0,  # zero after a start given by `init`
        degrees=model.degrees_of_freedom_,
    )
    moments = GaussianMoments(sums["counts"], sums["sums"], sums["products"], origins)
    mixture = maximization(moments, form, shrinkage, model.stream_evidence_ * moments.counts, means)
    model.weights_, model.covariances_ = mixture.weights, mixture.covariances[()]
    model.precisions_cholesky_ = prepare_gaussians(mixture.means, mixture.covariances, form).precisions_cholesky
    model.means_ = mixture.means if space is None else space.to_features(mixture.means)

"""Checks of the parameters that only mixtures have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.parameters import check_integer, check_number, is_auto
from dask_dca.anchoring.views import check_views
from dask_dca.errors import InvalidParameterError
from dask_dca.models.gaussians import COVARIANCE_TYPES

if TYPE_CHECKING:
    from dask_dca.anchoring.parameters import Settings
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Numbers


FORMS: Final = ("auto", *COVARIANCE_TYPES, "tied-spherical")
TAILS: Final = ("auto", "normal", "heavy")
_PASSES: Final = {"robust": 5, "paper": 0}  # of refinement; the paper has none
_WIDEST: Final = 2000  # features up to which covariances of p x p are formed


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


def check_mixture(
    rows: Rows,
    anchoring: Settings,
    n_components: int | None,
    *,
    method: str,
    covariance_type: Any,
    tails: Any,
    views: Any,
    max_iter: Any,
    tol: Any,
    reg_covar: Any,
) -> MixtureSettings:
    """Check the parameters that only mixtures have.

    n_components: checked number of components; None for "auto"; method, covariance_type, tails, views, max_iter, tol,
    reg_covar: as `GaussianMixture` takes them; the method is checked.
    Raises InvalidParameterError: one of them is unknown or out of range, or doesn't fit the data.
    """
    if covariance_type not in FORMS:
        msg = f"unknown covariance_type {covariance_type!r}; use one of {', '.join(map(repr, FORMS))}"
        raise InvalidParameterError(msg)
    if covariance_type in ("full", "tied") and rows.n_features > _WIDEST:
        p = rows.n_features
        msg = (
            f"covariance_type={covariance_type!r} needs matrices of {p} x {p} numbers, and {_WIDEST:,} features are "
            "the most for that; use covariance_type='diag'"
        )
        raise InvalidParameterError(msg)
    if tails not in TAILS:
        msg = f"unknown tails {tails!r}; use one of {', '.join(map(repr, TAILS))}"
        raise InvalidParameterError(msg)
    floor = None if is_auto(reg_covar) else check_number("reg_covar", reg_covar, auto=True)
    return MixtureSettings(
        anchoring,
        covariance_type,
        None if views is None else _views(rows, views, n_components),
        check_integer("max_iter", _PASSES[method] if is_auto(max_iter) else max_iter, 0, auto=True),
        check_number("tol", tol),
        floor,
        _tails(tails, covariance_type, method, floor),
    )


def _tails(tails: str, covariance_type: str, method: str, floor: float | None) -> str:
    """What "auto" is: chosen with the form of covariances, else as the form says."""
    if tails == "auto":
        return "auto" if covariance_type == "auto" and method == "robust" and floor is None else "normal"
    if tails == "heavy" and (covariance_type == "tied" or method == "paper" or floor is not None):
        msg = "tails='heavy' needs method='robust', reg_covar='auto', and another covariance_type than 'tied'"
        raise InvalidParameterError(msg)
    return tails


def _views(rows: Rows, views: Any, n_components: int | None) -> tuple[Numbers, Numbers, Numbers]:
    """Column numbers of the views, none of them narrower than the number of components."""
    groups = check_views(_numbered(rows, views), rows.n_features)
    narrowest = min(len(group) for group in groups)
    if n_components is not None and narrowest < n_components:
        msg = (
            f"a view of {narrowest} features can't tell n_components={n_components} components apart; use wider "
            "views, or views=None"
        )
        raise InvalidParameterError(msg)
    return groups


def _numbered(rows: Rows, views: Any) -> Any:
    """Views with column numbers in the place of names."""
    if not isinstance(views, list | tuple | np.ndarray) or not getattr(views, "ndim", 1):
        return views
    return [[_place(rows, name) for name in view] if _has_names(view) else view for view in views]


def _has_names(view: Any) -> bool:
    return isinstance(view, list | tuple | np.ndarray) and any(isinstance(name, str) for name in view)


def _place(rows: Rows, name: Any) -> int:
    known = [] if rows.feature_names is None else list(rows.feature_names)
    if name not in known:
        msg = f"views name the feature {name!r}, which X does not have; its features are {known[:5]}"
        raise InvalidParameterError(msg)
    return known.index(name)

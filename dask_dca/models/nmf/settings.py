"""Checks of the parameters that say which basis a factorization has, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dask_dca.anchoring.parameters import check_integer, check_number, check_option
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.hals import NO_PENALTY, Penalty

__all__ = ["BasisSettings", "check_basis"]

_BASES: Final = ("rows", "rays", "free", "auto")
_CRITERIA: Final = ("spectrum", "holdout")
_LOSSES: Final = ("frobenius", "kullback-leibler")


@dataclass(frozen=True)
class BasisSettings:
    """Checked parameters of a basis."""

    basis: str
    max_iter: int
    beta_loss: str
    coefficient_alpha: float
    component_alpha: float
    l1_ratio: float

    def of_coefficients(self, n_features: int, unit: int) -> Penalty:
        """Return the penalty of W, as scikit-learn scales it: by the number of features.

        unit: binary exponent of the unit that the rows and H are in; the error is in its square.
        """
        if self.coefficient_alpha == 0.0:
            return NO_PENALTY
        alpha = float(np.ldexp(self.coefficient_alpha * n_features, -2 * unit))
        return Penalty(alpha * self.l1_ratio, alpha * (1.0 - self.l1_ratio))

    def of_components(self, n_rows: float, unit: int) -> Penalty:
        """Return the penalty of H, scaled by the number of rows."""
        if self.component_alpha == 0.0:
            return NO_PENALTY
        alpha = self.component_alpha * n_rows
        return Penalty(float(np.ldexp(alpha * self.l1_ratio, -unit)), alpha * (1.0 - self.l1_ratio))


def check_basis(model: Any) -> BasisSettings:
    """Check the parameters of a model's basis.

    Raises InvalidParameterError: one is unknown or out of range, or the basis has no use for it.
    """
    basis = check_option("basis", model.basis, _BASES)
    check_option("criterion", model.criterion, _CRITERIA)
    loss = check_option("beta_loss", model.beta_loss, _LOSSES)
    max_iter = check_integer("max_iter", model.max_iter, 0)
    alpha_W = check_number("alpha_W", model.alpha_W)
    same = isinstance(model.alpha_H, str) and model.alpha_H == "same"
    alpha_H = alpha_W if same else check_number("alpha_H", model.alpha_H)
    ratio = check_number("l1_ratio", model.l1_ratio, 0.0, 1.0)
    if basis != "free" and (loss != _LOSSES[0] or alpha_W or alpha_H):
        what = f"beta_loss={loss!r}" if loss != _LOSSES[0] else "alpha_W and alpha_H"
        msg = f"{what} shape a basis that is free to move, and basis={basis!r} is not: use basis='free'"
        raise InvalidParameterError(msg)
    if basis != "rows" and model.method == "paper":
        msg = f"basis={basis!r} begins with the default method's anchors; with method='paper' use basis='rows'"
        raise InvalidParameterError(msg)
    if model.known is not None and model.method != "robust":
        msg = f"known anchors need method='robust'; received method={model.method!r}"
        raise InvalidParameterError(msg)
    return BasisSettings(basis, max_iter, loss, alpha_W, alpha_H, ratio)

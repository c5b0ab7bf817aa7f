"""What a Kalman filter says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_dca.models.describe import anchor_facts

__all__ = ["kalman_facts", "kalman_words"]


def kalman_facts(model: Any) -> dict[str, Any]:
    """
    Collect what a filter found, as plain values.

    Parameters
    ----------
    model : KalmanFilter
        A fitted one, or one of known parameters.

    Returns
    -------
    dict
        Plain values.
    """
    values = np.linalg.eigvals(model.transition_matrices_)
    found: dict[str, Any] = {
        "n_components": model.n_dim_state_,
        "n_dim_state": model.n_dim_state_,
        "eigenvalues": [[float(value.real), float(value.imag)] for value in values],
    }
    if hasattr(model, "anchor_indices_"):
        found |= {"n_subproblems": model.n_subproblems_, "anchors": anchor_facts(model)}
    if hasattr(model, "explained_"):
        found |= {
            "explained": model.explained_,
            "log_likelihoods": model.log_likelihoods_.tolist(),
            "canonical_correlations": model.canonical_correlations_.tolist(),
        }
    return found


def kalman_words(model: Any) -> list[str]:
    """
    Say what a filter found.

    Parameters
    ----------
    model : KalmanFilter
        A fitted one, or one of known parameters.

    Returns
    -------
    list of str
        A table of the modes, and sentences.
    """
    lines = [f"Kalman filter: {model.n_dim_state_} state dimensions of {model.n_features_in_} features"]
    values = np.linalg.eigvals(model.transition_matrices_)
    lines.append(f"{'mode':>6} {'size':>8} {'period in frames':>17}")
    for i, value in enumerate(sorted(values, key=lambda v: (-abs(v), -v.imag))):
        turn = abs(np.angle(value))
        period = f"{2 * np.pi / turn:.1f}" if turn > 1e-9 else "-"
        lines.append(f"{i + 1:>6} {abs(value):>8.4f} {period:>17}")
    if hasattr(model, "anchor_indices_"):
        shown = ", ".join(str(row) if row >= 0 else "none" for row in model.anchor_indices_.tolist())
        lines.append(f"State coordinates are amounts of the frames {shown}, less the mean.")
    if hasattr(model, "explained_"):
        lines.append(f"The model predicts {100 * model.explained_:.1f} % of a channel's variance one frame ahead.")
    return lines

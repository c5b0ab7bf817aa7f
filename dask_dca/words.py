"""What a fitted model says of itself: facts for programs, a table and plain sentences for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_dca import __version__

__all__ = ["certificate", "describe", "model_facts"]


def model_facts(model: Any) -> dict[str, Any]:
    """
    Collect what a fitted model says of itself.

    Parameters
    ----------
    model : NMF
        A fitted model.

    Returns
    -------
    dict
        Names and plain values, as `info --json` prints them.
    """
    anchors = [
        {"row": int(row), "votes": int(votes), "vote_share": float(share), "bounds": [float(low), float(high)]}
        for row, votes, share, (low, high) in zip(
            model.anchor_indices_, model.votes_, model.vote_share_, model.vote_confidence_, strict=True
        )
    ]
    return {
        "model": type(model).__name__,
        "version": __version__,
        "parameters": model.get_params(deep=False),
        "n_components": model.n_components_,
        "n_components_range": list(model.n_components_range_),
        "n_features": model.n_features_in_,
        "n_subproblems": model.n_subproblems_,
        "n_zero_rows": model.n_zero_rows_,
        "coverage": model.coverage_ if np.isfinite(model.coverage_) else None,
        "explained": model.explained_,
        "coverage_curve": model.coverage_curve_.tolist(),
        "anchors": anchors,
    }


def describe(model: Any) -> str:
    """
    Describe a fitted model in words and a table.

    Parameters
    ----------
    model : NMF
        A fitted model.

    Returns
    -------
    str
        A few lines of text.
    """
    lines = [
        f"{type(model).__name__}: {model.n_components_} anchors of {model.n_features_in_} features",
        f"{'anchor':>6} {'row':>10} {'votes':>7} {'share':>7}   95 % bounds",
    ]
    for i, row in enumerate(model.anchor_indices_):
        low, high = model.vote_confidence_[i]
        lines.append(
            f"{i + 1:>6} {row:>10} {model.votes_[i]:>7} {model.vote_share_[i]:>7.3f}   {low:.3f} to {high:.3f}"
        )
    return "\n".join([*lines, *certificate(model)])


def certificate(model: Any) -> list[str]:
    """
    Say in plain sentences how far the model can be trusted.

    Parameters
    ----------
    model : NMF
        A fitted model.

    Returns
    -------
    list of str
        Sentences, one a line.
    """
    least, most = model.n_components_range_
    lines = [f"The model explains {100 * model.explained_:.1f} % of the variance of a sample of the rows."]
    if np.isfinite(model.coverage_):
        reach = f"the anchors reach {100 * model.coverage_:.1f} % of the height of the data"
        lines.insert(0, f"Coverage {model.coverage_:.3f}: on planes that took no part in choosing them, {reach}.")
    if model.n_components == "auto":
        lines.append(f"The rules that choose the number of anchors said {least} to {most}.")
    if model.n_zero_rows_:
        lines.append(f"{model.n_zero_rows_} rows are all zero and were left out.")
    return lines

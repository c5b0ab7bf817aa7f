"""What models say of themselves: facts for programs, tables and plain sentences for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def anchor_facts(model: Any) -> list[dict[str, Any]]:
    """Collect the anchors' row numbers and votes.

    model: A fitted model with votes. Returns one an anchor, of plain values.
    """
    return [
        {"row": int(row), "votes": int(votes), "vote_share": float(share), "bounds": [float(low), float(high)]}
        for row, votes, share, (low, high) in zip(
            model.anchor_indices_, model.votes_, model.vote_share_, model.vote_confidence_, strict=True
        )
    ]


def anchor_table(model: Any) -> list[str]:
    """Set the anchors and their votes in a table.

    model: A fitted model with votes.
    """
    lines = [f"{'anchor':>6} {'row':>10} {'votes':>7} {'share':>7}   95 % bounds"]
    for i, row in enumerate(model.anchor_indices_):
        low, high = model.vote_confidence_[i]
        lines.append(f"{i:>6} {row:>10} {model.votes_[i]:>7} {model.vote_share_[i]:>7.3f}   {low:.3f} to {high:.3f}")
    return lines


def certificate(model: Any) -> list[str]:
    """Say in plain sentences how far anchors that cover the data can be trusted.

    model: A fitted model with a coverage and a share of variance.
    """
    least, most = model.n_components_range_
    lines = [
        f"The model explains {100 * model.explained_variance_ratio_:.1f} % of the variance of a sample of the rows."
    ]
    if np.isfinite(model.coverage_):
        reach = f"the anchors reach {100 * model.coverage_:.1f} % of the extent of the data"
        lines.insert(0, f"Coverage {model.coverage_:.3f}: on planes that took no part in choosing them, {reach}.")
    if model.n_components == "auto":
        lines.append(f"The rules that choose the number of anchors said {least} to {most}.")
    if model.n_zero_rows_:
        lines.append(f"{model.n_zero_rows_} rows are all zero and were left out.")
    return lines


def passes_of(model: Any) -> str:
    """Say how many passes refined a model.

    model: A fitted model with `n_iter_`.
    """
    return f"{model.n_iter_} pass{'es' * (model.n_iter_ != 1)}"


def indices_of(model: Any) -> NDArray[np.int64]:
    """Return the numbers of the anchors: rows, or of a topic model the columns of its anchor words; (k,)."""
    names = ("anchor_indices_", "anchor_words_", "indices")  # the last of `find_anchors`
    found: NDArray[np.int64] = getattr(model, next(name for name in names if hasattr(model, name)))
    return found

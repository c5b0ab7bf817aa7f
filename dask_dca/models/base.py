"""What all models share: parameters, checks of the input, fitted attributes of anchoring."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.errors import InvalidInputError
from dask_dca.models.anchors import anchors_of
from dask_dca.models.checkpoints import fit_checkpoint
from dask_dca.models.parameters import check_count, check_integer, check_settings

if TYPE_CHECKING:
    from dask_dca.models.result import AnchorResult

__all__ = ["AnchorModel"]


class AnchorModel(BaseEstimator):
    """
    Base of the models; not for direct use.

    Parameters
    ----------
    n_components : int or "auto"
        Number of components k.
    method, n_subproblems, ensemble, selection, random_state, retries, checkpoint, verbose : object
        As the models document them.
    """

    # what a saved model must have to be used: array attribute -> its shape, as attributes or numbers
    _shapes: ClassVar[dict[str, tuple[str | int, ...]]] = {}
    _scalars: ClassVar[dict[str, type]] = {}  # numbers that must be there, not negative if they are integers
    _count: ClassVar[str] = "n_components"  # the parameter that says how many parts the model has
    _per_row: ClassVar[str] = "transform"  # the method whose result, one row a row, is written by `dask dca transform`

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        method: str = "robust",
        n_subproblems: int | str = "auto",
        ensemble: str = "auto",
        selection: str = "auto",
        random_state: Any = 0,
        retries: int = 3,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.n_subproblems = n_subproblems
        self.ensemble = ensemble
        self.selection = selection
        self.random_state = random_state
        self.retries = retries
        self.checkpoint = checkpoint
        self.verbose = verbose

    def save(self, path: str) -> None:
        """
        Save the fitted model as a zarr group, which `load_model` reads; nothing in it is ever executed.

        Parameters
        ----------
        path : str
            Path or URL that does not exist yet.

        Raises
        ------
        ModelFileError
            The path exists or can't be written.
        """
        from dask_dca.store import save_model

        check_is_fitted(self)
        save_model(self, path)

    def _facts(self) -> dict[str, Any]:
        """What the model found, as plain values; subclasses add theirs."""
        return {"n_components": getattr(self, "n_components_", None), "n_features": self.n_features_in_}

    def _describe(self) -> list[str]:
        """What the model found, in lines of text; subclasses say more."""
        return [f"{type(self).__name__} of {self.n_features_in_} features"]

    def _run(self, rows: Rows | None = None) -> Run:
        """How passes are run; with the rows of a fit, finished ones are kept in the checkpoint, if there is one."""
        run = Run(check_integer("retries", self.retries, 0), bool(self.verbose))
        if rows is None or self.checkpoint is None or rows.kind == "memory":
            return run
        return replace(run, checkpoint=fit_checkpoint(self, rows, run))

    def _find_anchors(self, rows: Rows, run: Run, *, nonnegative: bool) -> AnchorResult:
        """Anchor the data and keep the certificate as fitted attributes."""
        settings = check_settings(self.method, self.n_subproblems, self.ensemble, self.selection, self.random_state)
        count = check_count(self.n_components, rows, "n_components")
        found = anchors_of(rows, count, self.method, settings, run, nonnegative=nonnegative)
        self.anchor_indices_ = found.indices
        self.n_components_ = len(found.indices)
        self.n_components_range_ = found.n_range
        self.votes_, self.vote_share_, self.vote_confidence_ = found.votes, found.vote_share, found.confidence
        self.n_subproblems_, self.n_pointed_ = found.n_subproblems, found.n_pointed
        self.candidates_, self.candidate_votes_ = found.candidates, found.candidate_votes
        self.coverage_, self.coverage_curve_ = found.coverage, found.coverage_curve
        self.n_zero_rows_, self.n_clipped_entries_ = found.n_zero_rows, found.n_clipped_entries
        return found

    def _rows(self, X: Any, *, reset: bool) -> Rows:
        """Take the input as rows, and check its features against those of fit (or keep them)."""
        rows = as_rows(X)
        if isinstance(X, np.ndarray) or type(X).__module__.partition(".")[0] in ("pandas", "scipy"):
            validate_data(self, X, reset=reset, skip_check_array=True)
        elif reset:
            self.n_features_in_ = rows.n_features
            if rows.feature_names is not None:
                self.feature_names_in_ = rows.feature_names
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        elif rows.n_features != self.n_features_in_:
            msg = (
                f"X has {rows.n_features} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
            raise InvalidInputError(msg)
        return rows

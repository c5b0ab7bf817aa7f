"""Non-negative matrix factorization X = F X_A whose basis is k real rows of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dask_dca.engine.labels import labelled
from dask_dca.engine.map import map_rows
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.types import add_parts
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.attributes import NMF as NMF_FITTED
from dask_dca.models.base import AnchorModel, whole_fit
from dask_dca.models.describe import anchor_facts, anchor_table, certificate
from dask_dca.models.labelled import feature_labels
from dask_dca.models.nmf.fit import as_basis, counts_basis, find_ray_basis, free_basis
from dask_dca.models.nmf.passes import (
    Basis,
    basis_block,
    coefficients_block,
    combinations_block,
    counts_block,
    exponent,
    residual_block,
    working_unit,
)
from dask_dca.models.nmf.settings import check_basis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.exact import Total
    from dask_dca.models.nmf.fit import BasisFit
    from dask_dca.models.nmf.settings import BasisSettings

    Floats = NDArray[np.float64]

__all__ = ["NMF"]

_GROWN: Final = 1.1  # growth of the simplex beyond the anchors' own from which they are not the rays


class NMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, AnchorModel):
    """
    Separable non-negative matrix factorization on chunked data of any size.

    Parameters
    ----------
    n_components : int or "auto", default "auto"
        Number of components k; "auto" takes it from the spectrum and warns of nothing: see
        `n_components_range_` for how far other rules disagree.
    method : {"robust", "paper"}, default "robust"
        The measured default, or the paper's Algorithm 1 as it stands.
    n_subproblems : int or "auto", default "auto"
        Number of random planes s; by default 10 k ln k.
    ensemble : str, default "auto"
        Where the planes' directions are drawn from: "mixed", "row-space", "whitened", "gaussian", "sparse",
        "unit" or "data".
    selection : {"auto", "candidates", "votes"}, default "auto"
        How k anchors are chosen among the rows with votes.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the planes. An integer gives the same model on every fit; None draws a new seed each time.
    retries : int, default 3
        How often a failing task is tried again on a cluster.
    basis : {"rows", "rays", "free", "auto"}, default "rows"
        What the components are. "rows": k rows of the data, the anchors. "rays": where no row is pure, the rays of the
        smallest cone around the extreme rows, up to noise. "free": whatever leaves least of the data, from the anchors
        on a sample until the loss settles, then by passes over all rows. "auto": rays where their simplex is clearly
        larger than the anchors' own (a tenth in each direction), else rows.
    max_iter : int, default 1
        Passes over all rows that move a free basis, at most.
    beta_loss : {"frobenius", "kullback-leibler"}, default "frobenius"
        What a free basis makes small: squares, or for counts the divergence, in which sparse rows stay sparse.
    alpha_W, alpha_H : float, default 0, and "same"
        Penalties of coefficients and of components, of a free basis, scaled as scikit-learn does: by the number of
        features and of rows. "same" is that of coefficients.
    l1_ratio : float, default 0
        Share of the penalties that is of sums (the rest is of squares).
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are kept: a fit that was killed, begun again with the
        same data and parameters, repeats only the pass that was not finished, and gives the same bits.
    verbose : bool, default False
        Show the passes' progress on standard error.

    Attributes
    ----------
    components_ : ndarray of shape (k, p)
        The anchors X_A: rows of the data, in the order of how much each adds; or the vectors of another basis.
    anchor_indices_ : ndarray of int64, shape (k,)
        Their row numbers; of another basis, the row of the least angle to each component, as the last pass saw them.
    basis_ : str
        What the components are.
    simplex_growth_, simplex_outside_ : float
        With "rays" and "auto": how much larger than the anchors' simplex the smallest one is, in each direction (1 is
        as large), and how far the furthest extreme row is outside, as a share of the simplex's height.
    reconstruction_err_ : float
        Frobenius norm of what coefficients and components leave out of the data, or the root of twice the divergence
        (not with basis "rows", whose fit finds no coefficients: see the method `reconstruction_err`).
    n_iter_, converged_ : int, bool
        How many passes chose the components (one, if they are rows) or moved a free basis; and whether a further one
        would change next to nothing.
    n_components_ : int
        Number of anchors found.
    n_components_range_ : tuple of int
        Least and greatest number that the rules behind "auto" spoke for.
    coverage_ : float
        Share of the data's height that the anchors' cone reaches, averaged over fresh planes; 1 is all.
    coverage_curve_ : ndarray of float64, shape (k,)
        The same with only the first 1, 2, ... k anchors.
    explained_variance_ratio_ : float
        Share of the variance of a sample of at most 128 rows that the model explains: 1 is all, 0 no more than
        their mean does.
    votes_, vote_share_ : ndarray of shape (k,)
        In how many planes each anchor is extreme, and the share of planes.
    vote_confidence_ : ndarray of float64, shape (k, 2)
        Wilson's 95 % bounds on that share.
    candidates_, candidate_votes_ : ndarray of int64, shape (c,)
        All rows with votes: the vote histogram.
    n_subproblems_, n_pointed_ : int
        Number of planes, and how many were pointed.
    n_zero_rows_, n_clipped_entries_ : int
        All-zero rows (left out), and negative entries of the size of rounding (set to zero).
    n_features_in_, n_passes_ : int
        Number of features p, and how often the fit read all rows (samples of them are not counted).
    feature_names_in_ : ndarray of str, shape (p,)
        Names of the features, where the input had them.

    See Also
    --------
    dask_dca.find_anchors : The anchors alone, for data of any sign.
    sklearn.decomposition.NMF : Iterative factorization with an artificial basis.

    Notes
    -----
    The model is X = F X_A (section 3.1 of Zhou, Bilmes and Guestrin, NIPS 2014): every row is a non-negative
    combination of k rows of the data. Data that are far from this have a low `coverage_`.

    Examples
    --------
    >>> import dask_dca as dca
    >>> rng = np.random.default_rng(0)
    >>> rays = rng.random((3, 8))
    >>> X = np.vstack([rays, rng.dirichlet(np.ones(3), 50) @ rays])
    >>> model = dca.NMF(3).fit(X)
    >>> sorted(model.anchor_indices_.tolist())
    [0, 1, 2]
    >>> bool(np.allclose(model.inverse_transform(model.transform(X)), X))
    True
    """

    _fitted: ClassVar = NMF_FITTED

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        basis: str = "rows",
        max_iter: int = 1,
        beta_loss: str = "frobenius",
        alpha_W: float = 0.0,
        alpha_H: float | str = "same",
        l1_ratio: float = 0.0,
        method: str = "robust",
        n_subproblems: int | str = "auto",
        ensemble: str = "auto",
        selection: str = "auto",
        random_state: Any = 0,
        retries: int = 3,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            n_components,
            method=method,
            n_subproblems=n_subproblems,
            ensemble=ensemble,
            selection=selection,
            random_state=random_state,
            retries=retries,
            checkpoint=checkpoint,
            verbose=verbose,
        )
        self.basis = basis
        self.max_iter = max_iter
        self.beta_loss = beta_loss
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio

    @whole_fit
    def fit(self, X: Any, y: Any = None) -> Self:
        """
        Find the anchors.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Non-negative data: NumPy, SciPy sparse, Dask array or DataFrame, xarray, zarr array or its path.
        y : None
            Ignored.

        Returns
        -------
        NMF
            The fitted model.

        Raises
        ------
        DCAError
            Negative, non-finite or empty data, or unusable parameters; the message says what to do.
        """
        del y
        settings = check_basis(self)
        rows = self._rows(X, reset=True)
        run = self._run(rows)
        found = self._find_anchors(rows, run, nonnegative=True)
        anchors = found.rows if len(found.rows) else fetch_rows(rows, found.indices, run, nonnegative=True)
        self.components_, self.basis_ = anchors.astype(rows.output_dtype), "rows"
        self.n_iter_, self.converged_ = 1, True
        if settings.basis in ("rays", "auto"):
            self._take_rays(rows, anchors, settings, run)
        if settings.basis == "free":
            k = self.n_components_ if self.n_components == "auto" else int(self.n_components)
            if settings.beta_loss == "frobenius":
                self._keep(free_basis(rows, anchors, k, settings, run), settings.basis)
            else:
                self._keep(counts_basis(rows, anchors, settings, run), settings.basis)
        self.n_passes_ = run.n_passes
        self.explained_variance_ratio_ = _explained(self.components_, found.sample)
        return self

    def _take_rays(self, rows: Rows, anchors: Floats, settings: BasisSettings, run: Run) -> None:
        """Put the rays of the smallest simplex in the place of the anchors: if asked for, or where it is larger."""
        extremes = fetch_rows(rows, self.candidates_, run, nonnegative=True)
        found = find_ray_basis(rows, anchors, extremes, run)
        if found is None:
            return
        self.simplex_growth_, self.simplex_outside_ = found.growth, found.outside
        if settings.basis == "rays" or found.growth > _GROWN:
            self._keep(as_basis(rows, found.rays, run, converged=found.converged), "rays")

    def _keep(self, found: BasisFit, basis: str) -> None:
        """Keep a basis in the place of the anchors, with the votes of the rows nearest to it."""
        rows, self.basis_ = found.nearest, basis
        self.components_ = found.components.astype(self.components_.dtype)
        self.n_components_, self.anchor_indices_ = len(rows), rows
        at = np.minimum(np.searchsorted(self.candidates_, rows), len(self.candidates_) - 1)
        self.votes_ = np.where(self.candidates_[at] == rows, self.candidate_votes_[at], 0)
        self.vote_share_ = self.votes_ / self.n_pointed_
        self.vote_confidence_ = wilson_bounds(self.votes_, self.n_pointed_)
        self.reconstruction_err_, self.n_iter_, self.converged_ = found.error, found.n_iter, found.converged

    def transform(self, X: Any) -> Any:
        """
        Express rows as non-negative combinations of the anchors.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, k)
            F with X = F X_A in the least-squares sense; lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        if self.basis_ == "rows":
            return map_rows(rows, coefficients_block, self.components_, self.n_components_)
        settings, unit = check_basis(self), working_unit(self.components_)
        if settings.beta_loss != "frobenius":
            state = self.components_.astype(np.float64), settings.of_coefficients(self.n_features_in_, 0)
            return map_rows(rows, counts_block, state, self.n_components_)
        penalty = settings.of_coefficients(self.n_features_in_, unit)
        basis = Basis(np.ldexp(self.components_.astype(np.float64), -unit), unit, penalty)
        return map_rows(rows, basis_block, basis, self.n_components_)

    def inverse_transform(self, X: Any) -> Any:
        """
        Combine the anchors.

        Parameters
        ----------
        X : array-like of shape (n, k)
            Coefficients F, as `transform` returns them.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, p)
            F X_A, in the dtype of the coefficients; lazy for chunked ones.

        Raises
        ------
        InvalidInputError
            Not as many coefficients a row as there are anchors.
        """
        check_is_fitted(self)
        rows = as_rows(X)
        if rows.n_features != self.n_components_:
            msg = f"X has {rows.n_features} coefficients a row, and the model {self.n_components_} anchors"
            raise InvalidInputError(msg)
        bare = replace(rows, labels=None)
        found = map_rows(bare, combinations_block, self.components_, self.n_features_in_)
        if rows.labels is None:
            return found
        feature, values = feature_labels(self)
        return labelled(replace(rows.labels, features=feature, of_features=values), found, "features")

    def reconstruction_err(self, X: Any) -> float:
        """
        Measure how much of the data the model leaves out, in one pass.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.

        Returns
        -------
        float
            Frobenius norm of X - F X_A: the same bits for any chunking.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        run = self._run()
        job: Pass[Total] = Pass("residual", residual_block, add_parts)
        squares = run_pass(rows, job, self.components_, run).value()
        return float(np.ldexp(np.sqrt(squares), exponent(self.components_)))

    def _check_parameters(self, rows: Any) -> None:
        super()._check_parameters(rows)
        check_basis(self)

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {
            "n_components_range": list(self.n_components_range_),
            "n_subproblems": self.n_subproblems_,
            "n_zero_rows": self.n_zero_rows_,
            "coverage": self.coverage_ if np.isfinite(self.coverage_) else None,
            "explained": self.explained_variance_ratio_,
            "coverage_curve": self.coverage_curve_.tolist(),
            "anchors": anchor_facts(self),
            "basis": self.basis_,
            "n_iter": self.n_iter_,
            "converged": self.converged_,
        }

    def _describe(self) -> list[str]:
        if self.basis_ == "rows":
            head = f"NMF: {self.n_components_} anchors of {self.n_features_in_} features"
            return [head, *anchor_table(self), *certificate(self)]
        head = f"NMF: {self.n_components_} components of {self.n_features_in_} features (basis {self.basis_!r})"
        note = "Components are no rows: the rows in the table are nearest to them. Coverage is that of the anchors."
        return [head, note, *anchor_table(self), *certificate(self), *self._grown()]

    def _grown(self) -> list[str]:
        """What the simplex says, where there is one."""
        if not hasattr(self, "simplex_growth_"):
            return []
        grown, outside = self.simplex_growth_, 100 * self.simplex_outside_
        return [
            f"The smallest simplex is {grown:.2f} times as large as the anchors'; rows stick out by {outside:.1f} %."
        ]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _explained(components: Floats, sample: Floats) -> float:
    """Share of the sample's variance that the model explains."""
    spread = np.ldexp(sample - sample.mean(axis=0), -exponent(components))
    left, whole = float(residual_block(components, 0, sample).value()), float((spread**2).sum())
    return 1.0 - left / whole if whole > 0.0 else float(left == 0.0)

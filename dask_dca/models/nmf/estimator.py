"""Non-negative matrix factorization X = F X_A whose basis is k real rows of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dask_dca.anchoring.anchors import anchors_of
from dask_dca.anchoring.completion import count_by_holdout
from dask_dca.anchoring.parameters import check_count
from dask_dca.engine.cubes import as_cube, labelled
from dask_dca.engine.numerics import numpy_defaults
from dask_dca.engine.passes import Pass, map_rows, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.types import Reads, add_parts
from dask_dca.engine.weights import weigh_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.attributes import NMF as NMF_FITTED
from dask_dca.models.attributes import completion_of, keep_completion
from dask_dca.models.base import AnchorModel, whole_fit
from dask_dca.models.describe import anchor_facts, anchor_table, certificate
from dask_dca.models.labelled import NamedParts, feature_labels, part_dim
from dask_dca.models.nmf.fit import (
    as_basis,
    check_basis,
    counts_basis,
    filled_rows_of,
    find_ray_basis,
    free_basis,
)
from dask_dca.models.nmf.passes import (
    Basis,
    Filling,
    coefficients_of_observed,
    combinations_block,
    counts_block,
    exponent,
    imputed_block,
    residual_block,
    residual_of_observed,
    working_unit,
)
from dask_dca.models.nmf.rays import GROWN
from dask_dca.models.nmf.stream import (
    Lost,
    can_stream,
    check_resumed,
    check_same_stream,
    check_stream,
    go_on_with_holes,
    keep_features_of,
    keep_stream,
    merge_streams,
    stream_anchors,
    stream_of,
)
from dask_dca.models.stream import check_grown

if TYPE_CHECKING:
    from dask_dca.anchoring.parameters import AnchorResult
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats
    from dask_dca.geometry.exact import Total
    from dask_dca.models.nmf.fit import BasisFit, BasisSettings
    from dask_dca.models.nmf.stream import AnchorStream


_LESS: Final = 0.01  # of the variance, that rays may explain less than anchors


class NMF(NamedParts, AnchorModel):
    """
    Separable non-negative matrix factorization on chunked data of any size.

    Parameters
    ----------
    n_components : int or "auto", default "auto"
        Number of components k; "auto" takes it from the spectrum, or as `criterion` says, and warns of nothing: see
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
    missing : float or "implicit", optional
        What stands for a missing entry beside NaN and masked entries: a number, or "implicit" for what sparse rows
        don't store.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the planes. An integer gives the same model on every fit; None draws a new seed each time.
    retries : int, default 3
        How often a failing task is tried again on a cluster.
    basis : {"rows", "rays", "free", "auto"}, default "rows"
        What the components are. "rows": k rows of the data, the anchors. "rays": the rays of the smallest cone around
        the extreme rows, up to noise, and where no row is pure the likeliest near it. "free": whatever leaves least of
        the data, from the anchors on a sample until the loss settles, then by passes over all rows. "auto": rays where
        their simplex is clearly larger than the anchors' own (a tenth in each direction), else rows.
    max_iter : int, default 1
        Passes over all rows that move a free basis, at most; other bases refuse another value.
    beta_loss : {"frobenius", "kullback-leibler"}, default "frobenius"
        What a free basis makes small: squares, or for counts the divergence, in which sparse rows stay sparse.
    alpha_W, alpha_H : float, default 0, and "same"
        Penalties of coefficients and of components, of a free basis, scaled as scikit-learn does: by the number of
        features and of rows. "same" is that of coefficients.
    l1_ratio : float, default 0
        Share of the penalties that is of sums (the rest is of squares).
    criterion : {"spectrum", "holdout"}, default "spectrum"
        How `n_components="auto"` chooses. "spectrum" goes by the spectrum of the rows; "holdout" by the error of
        entries that are hidden from low-rank models of more and more directions, as is always done where entries are
        missing. It is for data of noise that is alike in all entries.
    known : array-like, optional
        Anchors that are known beforehand: row numbers (r,), or rows (r, p), whose `anchor_indices_` are -1. They come
        first, and the others are found around them.
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are kept: a fit that was killed, begun again with the
        same data and parameters, repeats only the pass that was not finished, and ends bit for bit the same.
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
        Least and greatest number that the rules behind "auto" spoke for: the widest ratio of successive eigenvalues,
        and how many are above the edge of noise. One number where entries are held out, and where k was given.
    coverage_ : float
        Share of the data's extent that the anchors' cone reaches, averaged over fresh planes; 1 is all.
    coverage_curve_ : ndarray of float64, shape (k,)
        The same with only the first 1, 2, ... k anchors.
    explained_variance_ratio_ : float
        Share of the variance of a sample of up to 2,048 rows that the model explains: 1 is all, 0 no more than their
        mean does. The sample has 2**20 entries at most, but 128 rows at least, and 128 after `partial_fit`.
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
    n_unobserved_rows_, n_missing_entries_ : int
        Rows without any observed entry (left out), and entries of all rows that are missing.
    completion_mean_, completion_loadings_, completion_spread_, completion_noise_ : ndarray or float
        After a fit on rows with missing entries: mean (p,) and loadings (p, r) of the low-rank model that completes
        them, the covariances (p, r, r) of the loadings, and the variance of the noise.
    n_samples_seen_ : int
        Number of rows that the model was fitted on, in all batches of `partial_fit`.
    stream_rows_ : ndarray of float64, shape (c, p)
        After `partial_fit`: the rows that are extreme on a plane, and a sample of 128; what it goes on from.
    stream_numbers_, stream_extremes_ : ndarray of int64, shape (c,) and (2, t)
        Their row numbers, and which of them is the greatest and the least on each plane.
    stream_seed_ : int
        Seed of these planes.
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
        known: Any = None,
        criterion: str = "spectrum",
        method: str = "robust",
        n_subproblems: int | str = "auto",
        ensemble: str = "auto",
        selection: str = "auto",
        missing: float | str | None = None,
        random_state: Any = 0,
        retries: int = 3,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        self._take(locals())

    @whole_fit
    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, resume: Self | None = None) -> Self:
        """
        Find the anchors.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Non-negative data: NumPy, SciPy sparse, Dask array or DataFrame, xarray, zarr array or its path.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
            How often each row counts: NumPy, or a Dask array in any chunks. A whole number is so many copies of the
            row; a row of weight zero takes no part. Weights decide where planes look and what a basis other than rows
            makes small; which rows are extreme they can't change.
        resume : NMF, optional
            A model of the first rows of X, which has grown since: only the blocks after these rows are read. The result
            is that of `partial_fit` with the new rows.

        Returns
        -------
        NMF
            The fitted model.

        Raises
        ------
        DCAError
            Negative, infinite or empty data, or unusable parameters; the message says what to do.

        Notes
        -----
        Entries that are missing are NaN, masked, or what `missing` says. Then a Bayesian low-rank model of a sample
        tells where rows lie, and a `FewEntriesWarning` says where too few were observed to tell.
        """
        del y
        settings = check_basis(self)
        if resume is not None and sample_weight is not None:
            msg = "a stream takes rows as they are: pass sample_weight=None with resume"
            raise InvalidParameterError(msg)
        if resume is not None:
            return self._see_more(X, resume, check_resumed(resume, type(self)))
        rows = weigh_rows(self._rows(X, reset=True), sample_weight, self._run())
        run = self._run(rows)
        self.n_samples_seen_ = rows.n_rows
        count = check_count(self.n_components, rows, "n_components")
        if count is None and self.criterion == "holdout":
            count = count_by_holdout(rows, run, nonnegative=True)
        found = anchors_of(rows, count, self.method, self._anchoring(), run, known=self.known, nonnegative=True)
        self._keep_certificate(found)
        keep_completion(self, found.completion)
        if found.completion is not None and settings.basis != "rows":
            rows = filled_rows_of(rows, Filling(found.rows, found.completion))
            run = replace(run, reads=Reads(rows.source, run.n_passes))
        anchors = found.rows if len(found.rows) else fetch_rows(rows, found.indices, run, nonnegative=True)
        self.components_, self.basis_ = anchors.astype(rows.output_dtype), "rows"
        self.n_iter_, self.converged_ = 1, True
        if settings.basis in ("rays", "auto"):
            self._take_rays(rows, anchors, found.sample, settings, run)
        if settings.basis == "free":
            k = self.n_components_ if self.n_components == "auto" else int(self.n_components)
            if settings.beta_loss == "frobenius":
                self._keep(free_basis(rows, anchors, k, settings, run), settings.basis)
            else:
                self._keep(counts_basis(rows, anchors, settings, run), settings.basis)
        self.n_passes_ = run.n_passes
        self.explained_variance_ratio_ = _explained(self.components_, found.sample)
        return self

    def _take_rays(self, rows: Rows, anchors: Floats, sample: Floats, settings: BasisSettings, run: Run) -> None:
        """Put the rays of the smallest simplex in the place of the anchors: if asked for, or where it is larger.

        Not those that explain less of the sample: more anchors than rays span no simplex but that of rounding.
        """
        extremes = fetch_rows(rows, self.candidates_, run, nonnegative=True)
        found = find_ray_basis(rows, anchors, extremes, run)
        if found is None or _explained(found.rays, sample) < _explained(anchors, sample) - _LESS:
            return
        self.simplex_growth_, self.simplex_outside_ = found.growth, found.outside
        if settings.basis == "rays" or found.growth > GROWN:
            self._keep(as_basis(rows, found.rays, run, converged=found.converged), "rays")

    def _keep_certificate(self, found: AnchorResult) -> None:
        """Keep the certificate as fitted attributes."""
        self.anchor_indices_ = found.indices
        self.n_components_ = len(found.indices)
        self.n_components_range_ = found.n_range
        self.votes_, self.vote_share_, self.vote_confidence_ = found.votes, found.vote_share, found.confidence
        self.n_subproblems_, self.n_pointed_ = found.n_subproblems, found.n_pointed
        self.candidates_, self.candidate_votes_ = found.candidates, found.candidate_votes
        self.coverage_, self.coverage_curve_ = found.coverage, found.coverage_curve
        self.n_zero_rows_, self.n_clipped_entries_ = found.n_zero_rows, found.n_clipped_entries
        self.n_unobserved_rows_, self.n_missing_entries_ = found.n_unobserved_rows, found.n_missing_entries

    def _keep(self, found: BasisFit, basis: str) -> None:
        """Keep a basis in the place of the anchors, with the votes of the rows nearest to it."""
        rows, self.basis_ = found.nearest, basis
        most = np.min_scalar_type(float(found.components.max(initial=0.0)))  # no rows: they may be above any
        self.components_ = found.components.astype(np.result_type(self.components_.dtype, np.float32, most))
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
            F with X = F X_A in the least-squares sense, on the entries that were observed; NaN for rows without any.
            Lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        check_is_fitted(self)
        rows = self._for_output(self._rows(X, reset=False))
        if self.basis_ == "rows":
            return map_rows(rows, coefficients_of_observed, Basis.of_rays(self.components_), self.n_components_)
        settings, unit = check_basis(self), working_unit(self.components_)
        if settings.beta_loss != "frobenius":
            state = self.components_.astype(np.float64), settings.of_coefficients(self.n_features_in_, 0)
            return map_rows(rows, counts_block, state, self.n_components_)
        penalty = settings.of_coefficients(self.n_features_in_, unit)
        basis = Basis(np.ldexp(self.components_.astype(np.float64), -unit), unit, penalty)
        return map_rows(rows, coefficients_of_observed, basis, self.n_components_)

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
        rows = as_rows(as_cube(X, part_dim(self, X)))
        if rows.n_features != self.n_components_:
            msg = f"X has {rows.n_features} coefficients a row, and the model {self.n_components_} anchors"
            raise InvalidInputError(msg)
        bare = replace(rows, labels=None)
        found = map_rows(bare, combinations_block, self.components_, self.n_features_in_)
        if rows.labels is None:
            return found
        feature, values = feature_labels(self)
        return labelled(rows.labels.with_features(feature, values, self.n_features_in_), found, "features")

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
            Frobenius norm of X - F X_A on the observed entries, bit for bit the same for any chunking.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        run = self._run()
        job: Pass[Total] = Pass("residual", residual_of_observed, add_parts)
        squares = run_pass(rows, job, self.components_, run).value()
        return float(np.ldexp(np.sqrt(squares), exponent(self.components_)))

    def score(self, X: Any, y: Any = None) -> float:
        """
        Measure how well the model describes data, for searches and cross-validation; larger is better.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.
        y : None
            Ignored.

        Returns
        -------
        float
            Less the reconstruction error: `-reconstruction_err(X)`.
        """
        del y
        return -self.reconstruction_err(X)

    def _check_parameters(self, rows: Any) -> None:
        super()._check_parameters(rows)
        check_basis(self)

    def impute(self, X: Any) -> Any:
        """
        Fill missing entries: what was observed stays as it is.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data with missing entries, as for `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, p)
            The rows, missing entries filled by the posterior mean of the low-rank model that the fit learnt, at least
            zero; after a fit on complete rows, by the mixture of the components that is nearest to what was observed (a
            row without any observed entry stays NaN then). Lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).

        Examples
        --------
        >>> import dask_dca as dca
        >>> rng = np.random.default_rng(0)
        >>> X = rng.dirichlet(np.ones(3), 500) @ rng.random((3, 20))
        >>> holes = np.where(rng.random(X.shape) < 0.3, np.nan, X)
        >>> filled = dca.NMF(3).fit(holes).impute(holes)
        >>> bool(abs(filled - X).max() < 1e-3)
        True
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        state = Filling(self.components_, completion_of(self))
        found = map_rows(replace(rows, labels=None), imputed_block, state, self.n_features_in_)
        return labelled(rows.labels, found, "features")

    @available_if(can_stream)
    @numpy_defaults
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """
        Go on with more rows: a stream of batches, of which none is seen twice or kept.

        Planes of all ones and Gaussian directions are fixed by the first batch; of each the model keeps the two extreme
        rows so far, and chooses the anchors among these by successive projection. So any cut of complete rows into
        batches, in any order, gives the same anchors, bit for bit.

        Parameters
        ----------
        X : array-like of shape (m, p)
            The next rows, as for `fit`. After `fit` its anchors stand for the rows that it saw. Missing entries are
            filled by the low-rank model that was learnt of the first rows with any: by `fit`, or of that batch, which
            should be like the rows that follow.
        y : None
            Ignored.

        Returns
        -------
        NMF
            The model of all rows so far; of fewer than k anchors as long as the rows span no more. Row numbers count
            the rows in the order of their arrival.

        Raises
        ------
        DCAError
            Unusable data or parameters; the model is as it was before.
        AttributeError
            The model has no such method with `n_components="auto"`, or with the paper's: planes are fixed beforehand.

        See Also
        --------
        dask_dca.merge : One model of two streams.

        Examples
        --------
        >>> import dask_dca as dca
        >>> rng = np.random.default_rng(0)
        >>> X = rng.dirichlet(np.ones(3), 100) @ rng.random((3, 8))
        >>> model = dca.NMF(3)
        >>> for batch in np.array_split(X, 7):
        ...     model = model.partial_fit(batch)
        >>> bool((model.components_ == dca.NMF(3).partial_fit(X).components_).all())
        True
        """
        del y
        return self._fit_more(X, self if self.__sklearn_is_fitted__() else None)

    @whole_fit
    def _fit_more(self, X: Any, earlier: Self | None) -> Self:
        return self._see_more(X, earlier, 0)

    def _see_more(self, X: Any, earlier: Self | None, since: int) -> Self:
        """Let the rows of X from a number on follow what an earlier model saw."""
        k = check_stream(self)
        if earlier is not None:
            keep_features_of(self, earlier)
        rows = self._rows(X, reset=earlier is None)
        check_grown(rows, since)
        stream = stream_of(earlier, self._anchoring(), k, rows.n_features)
        dtype = rows.output_dtype if earlier is None else np.result_type(earlier.components_, rows.output_dtype)
        lost = Lost() if earlier is None else Lost.of(earlier)
        stream, lost, self.n_passes_ = go_on_with_holes(stream, rows, self._run(), k, lost, since=since)
        return self._keep_stream(stream, lost, k, dtype)

    def _keep_stream(self, stream: AnchorStream, lost: Lost, n_components: int, dtype: Any) -> Self:
        found = stream_anchors(stream, n_components)
        self._keep_certificate(found)
        self.n_unobserved_rows_, self.n_missing_entries_ = lost.n_unobserved_rows, lost.n_missing_entries
        keep_completion(self, lost.completion)
        keep_stream(self, stream)
        self.components_, self.basis_ = found.rows.astype(dtype), "rows"
        self.n_iter_, self.converged_ = 1, True
        self.explained_variance_ratio_ = _explained(self.components_, found.sample)
        return self

    def _merged(self, other: Self) -> Self:
        check_same_stream(self, other)
        return clone(self)._fit_merged(self, other)

    @whole_fit
    def _fit_merged(self, first: Self, second: Self) -> Self:
        keep_features_of(self, first)
        k, settings = check_stream(self), self._anchoring()
        streams = [stream_of(part, settings, k, part.n_features_in_) for part in (first, second)]
        lost = Lost.of(first) + Lost.of(second)
        dtype = np.result_type(first.components_, second.components_)
        self.n_passes_ = 1
        return self._keep_stream(merge_streams(*streams), lost, k, dtype)

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


def _explained(components: Floats, sample: Floats) -> float:
    """Share of the sample's variance that the model explains."""
    scaled = np.ldexp(sample, -exponent(components))
    spread = scaled - scaled.mean(axis=0)
    left, whole = float(residual_block(components, 0, sample).value()), float((spread**2).sum())
    return 1.0 - left / whole if whole > 0.0 else float(left == 0.0)

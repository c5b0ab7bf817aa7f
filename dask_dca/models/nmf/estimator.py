"""Non-negative matrix factorization X = F X_A whose basis is k real rows of the data."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dask_dca.anchoring.anchors import anchors_of
from dask_dca.anchoring.completion import count_by_holdout
from dask_dca.anchoring.parameters import AnchorResult, check_count
from dask_dca.engine.cubes import as_cube, labelled
from dask_dca.engine.passes import Pass, Run, map_rows, run_pass
from dask_dca.engine.process import numpy_defaults
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.types import Reads, add_parts
from dask_dca.engine.weights import weigh_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.geometry.arrays import Floats
from dask_dca.geometry.exact import Total
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.attributes import NMF as NMF_FITTED
from dask_dca.models.attributes import completion_of, keep_completion
from dask_dca.models.base import AnchorModel, whole_fit
from dask_dca.models.describe import anchor_facts, anchor_table, certificate
from dask_dca.models.labelled import NamedParts, feature_labels, part_dim
from dask_dca.models.nmf.fit import (
    BasisFit,
    BasisSettings,
    as_basis,
    check_basis,
    counts_basis,
    fill_rows,
    find_ray_basis,
    free_basis,
)
from dask_dca.models.nmf.free import NO_PENALTY
from dask_dca.models.nmf.passes import (
    Basis,
    Filling,
    basis_block,
    coefficients_of_observed,
    combinations_block,
    counts_block,
    exponent,
    imputed_block,
    residual_block,
    residual_of_observed,
    working_unit,
)
from dask_dca.models.nmf.rays import MIN_GROWTH
from dask_dca.models.nmf.stream import (
    AnchorStream,
    MissingCounts,
    add_incomplete_rows,
    can_stream,
    check_same_stream,
    check_stream,
    keep_features_of,
    keep_stream,
    merge_streams,
    stream_anchors,
    stream_of,
)
from dask_dca.models.stream import check_grown, seen_rows

_MAX_LOSS: Final = 0.01  # rays may explain this much less of the variance than the anchors


class NMF(NamedParts, AnchorModel):
    """
    Separable non-negative matrix factorization on chunked data of any size.

    Parameters
    ----------
    n_components : int or "auto", default "auto"
        Number of components k; "auto" chooses it by the spectrum, or by another `criterion`. There is no warning if the
        choice is doubtful: `n_components_range_` tells how far other rules disagree.
    method : {"robust", "paper"}, default "robust"
        The default, or Algorithm 1 of the paper as published.
    n_subproblems : int or "auto", default "auto"
        Number of random planes s; by default 10 k ln k.
    ensemble : str, default "auto"
        Where the planes' directions are drawn from: "mixed", "row-space", "whitened", "gaussian", "sparse",
        "unit" or "data".
    selection : {"auto", "candidates", "votes"}, default "auto"
        How k anchors are chosen from the rows with votes: by how far they reach together, or by most votes.
    missing : float or "implicit", optional
        Marker of missing entries beside NaN and masked entries: a number, or "implicit" for entries that sparse rows
        don't store.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the planes. An integer gives the same model on every fit; None draws a new seed each time.
    retries : int, default 3
        How often a failed task is retried on a cluster.
    basis : {"rows", "rays", "free", "auto"}, default "rows"
        What the components are. "rows": k rows of the data, the anchors. "rays": the rays of the smallest cone around
        the extreme rows, up to noise, or, if no row is pure, of the cone of greatest likelihood near it. "free":
        components that minimise the loss, fitted from the anchors on a sample until the loss settles, then by passes
        over all rows. "auto": rays if their simplex is clearly larger than the anchors' own (by a tenth in each
        direction), else rows.
    max_iter : int, default 1
        Maximum number of passes over all rows that update a free basis; other bases accept the default only.
    beta_loss : {"frobenius", "kullback-leibler"}, default "frobenius"
        The loss that a free basis minimises: squared error, or for counts the Kullback-Leibler divergence, for which
        sparse rows stay sparse.
    alpha_W, alpha_H : float, default 0, and "same"
        Penalties of the coefficients and of the components of a free basis, scaled by the number of features and of
        rows as in scikit-learn. "same" takes that of the coefficients.
    l1_ratio : float, default 0
        Share of the penalties that is L1; the rest is squared L2.
    criterion : {"spectrum", "holdout"}, default "spectrum"
        How `n_components="auto"` chooses: by the spectrum of the rows, or by the error that low-rank models of
        increasing rank make on held-out entries. "holdout" is for noise of equal variance in all entries; it is always
        used if entries are missing.
    known : array-like, optional
        Anchors that are known beforehand: row numbers (r,), or rows (r, p), whose `anchor_indices_` are -1. They come
        first, and the other anchors are chosen in addition to them.
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are kept. If a fit that was killed is started again with the
        same data and parameters, it repeats only the unfinished pass, and its result is bit for bit the same.
    verbose : bool, default False
        Show the passes' progress on standard error.

    Attributes
    ----------
    components_ : ndarray of shape (k, p)
        The anchors X_A: rows of the data, in the order of how much each adds; or the vectors of another basis.
    anchor_indices_ : ndarray of int64, shape (k,)
        Row numbers of the anchors; for another basis, the row of least angle to each component in the last pass.
    basis_ : str
        What the components are: "rows", "rays" or "free".
    simplex_growth_, simplex_outside_ : float
        With "rays" and "auto": how much larger than the anchors' simplex the smallest one is, in each direction (1 is
        as large), and how far the furthest extreme row is outside, as a share of the simplex's height.
    reconstruction_err_ : float
        Frobenius norm of the residuals, or the root of twice the divergence, at the coefficients of the last pass:
        refitted ones leave slightly less. Not with basis "rows", whose fit computes no coefficients: see the method
        `reconstruction_err`.
    n_iter_, converged_ : int, bool
        Number of passes that chose the components (one, if they are rows or exact) or updated a free basis; and whether
        a further one would change them only negligibly.
    n_components_ : int
        Number of anchors found.
    n_components_range_ : tuple of int
        Minimum and maximum of the numbers that the rules behind "auto" gave: the widest ratio of successive
        eigenvalues, and the number of eigenvalues above the edge of noise. A single number with held-out entries, and
        if k was given.
    coverage_ : float
        Share of the data's extent that the anchors' cone reaches, averaged over fresh planes; 1 is all of it.
    coverage_curve_ : ndarray of float64, shape (k,)
        The same with only the first 1, 2, ... k anchors.
    explained_variance_ratio_ : float
        Share of the variance of a sample of up to 2,048 rows that the model explains; 0 is no more than their mean
        explains. The sample has at most 2**20 entries, but at least 128 rows, and 128 rows after `partial_fit`.
    votes_, vote_share_ : ndarray of shape (k,)
        Number and share of the planes in which each anchor is extreme.
    vote_confidence_ : ndarray of float64, shape (k, 2)
        Wilson's 95 % confidence bounds on that share.
    candidates_, candidate_votes_ : ndarray of int64, shape (c,)
        All rows with votes, and their votes: the vote histogram.
    n_subproblems_, n_pointed_ : int
        Number of planes, and how many of them were pointed.
    n_zero_rows_, n_clipped_entries_ : int
        Number of all-zero rows (left out), and of negative entries of the size of rounding (set to zero).
    n_unobserved_rows_, n_missing_entries_ : int
        Number of rows without any observed entry (left out), and of missing entries.
    completion_mean_, completion_loadings_, completion_spread_, completion_noise_ : ndarray or float
        After a fit on rows with missing entries: mean (p,) and loadings (p, r) of the low-rank model that completes
        them, the covariances (p, r, r) of the loadings, and the variance of the noise.
    n_samples_seen_ : int
        Number of rows that the model was fitted on, in all batches of `partial_fit`.
    stream_rows_ : ndarray of float64, shape (c, p)
        State of `partial_fit`: the rows that are extreme on a plane, and a sample of 128.
    stream_numbers_, stream_extremes_ : ndarray of int64, shape (c,) and (2, t)
        Row numbers of these rows, and which of them is the greatest and the least on each plane.
    stream_seed_ : int
        Seed of these planes.
    n_features_in_, n_passes_ : int
        Number of features p, and how often the fit read all rows (samples of them are not counted).
    feature_names_in_ : ndarray of str, shape (p,)
        Names of the features, if the input had them.

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
    _told: ClassVar = ("n_components_range", "n_subproblems", "n_zero_rows", "coverage", "coverage_curve", "basis",
                       "n_iter", "converged")  # fmt: skip

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
            How often each row counts: NumPy, or a Dask array in any chunks. An integer weight is equivalent to that
            many copies of the row; a row of weight zero is ignored. Weights change the directions of the planes and the
            loss of a basis other than rows; they don't change which rows are extreme.
        resume : NMF, optional
            A model of the first rows of X, to which rows have been appended since: only the blocks after these rows are
            read. The result is that of `partial_fit` with the new rows.

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
        Missing entries are NaN, masked, or what `missing` says. They are filled by a Bayesian low-rank model of a
        sample; a `FewEntriesWarning` is issued if too few entries were observed to fit it.
        """
        settings = check_basis(self)
        if resume is not None and sample_weight is not None:
            msg = "a stream takes rows as they are: pass sample_weight=None with resume"
            raise InvalidParameterError(msg)
        if resume is not None:
            return self._see_more(X, resume, seen_rows(resume, type(self)))
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
            rows = fill_rows(rows, Filling(found.rows, found.completion))
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
        """Replace the anchors by the rays of the smallest simplex, if asked for, or if it is larger.

        Rays that explain less of the sample are rejected: with more anchors than rays the simplex is one of rounding.
        """
        extremes = fetch_rows(rows, self.candidates_, run, nonnegative=True)
        found = find_ray_basis(rows, anchors, extremes, run)
        if found is None or _explained(found.rays, sample) < _explained(anchors, sample) - _MAX_LOSS:
            return
        self.simplex_growth_, self.simplex_outside_ = found.growth, found.outside
        if settings.basis == "rays" or found.growth > MIN_GROWTH:
            self._keep(as_basis(rows, found.rays, run, converged=found.converged), "rays")

    def _keep_certificate(self, found: AnchorResult) -> None:
        """Store the certificate in fitted attributes."""
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
        """Store a basis in place of the anchors, with the votes of the rows nearest to its components."""
        rows, self.basis_ = found.nearest, basis
        most = np.min_scalar_type(float(found.components.max(initial=0.0)))  # may be greater than any entry of the data
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
            F with X = F X_A in the least-squares sense, on the observed entries; NaN for rows without any. By another
            loss, or with penalties, missing entries are filled first, as by `impute`. Lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        check_is_fitted(self)
        rows = self._for_output(self._rows(X, reset=False))
        settings, unit, completion = check_basis(self), working_unit(self.components_), completion_of(self)
        components, squares = self.components_.astype(np.float64), settings.beta_loss == "frobenius"
        penalty = settings.of_coefficients(self.n_features_in_, unit if squares else 0)
        basis: Any = Basis(np.ldexp(components, -unit), unit, penalty) if squares else (components, penalty)
        filling = Filling(self.components_, None if squares and penalty == NO_PENALTY else completion)
        find = partial(coefficients_of_observed, basis_block if squares else counts_block)
        return map_rows(rows, find, (basis, filling), self.n_components_)

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
            The number of coefficients per row is not the number of anchors.
        """
        check_is_fitted(self)
        rows = as_rows(as_cube(X, part_dim(self, X)))
        if rows.n_features != self.n_components_:
            msg = f"X has {rows.n_features} coefficients per row, and the model has {self.n_components_} anchors"
            raise InvalidInputError(msg)
        bare = replace(rows, labels=None)
        found = map_rows(bare, combinations_block, self.components_, self.n_features_in_)
        if rows.labels is None:
            return found
        feature, values = feature_labels(self)
        return labelled(rows.labels.with_features(feature, values, self.n_features_in_), found, "features")

    def reconstruction_err(self, X: Any) -> float:
        """
        Compute the Frobenius norm of the residuals, in one pass.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.

        Returns
        -------
        float
            Frobenius norm of X - F X_A on the observed entries, bit for bit the same for any chunking. F are the
            coefficients of least squares, also where the fit had another loss or penalties.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        run = self._run()
        job: Pass[Total] = Pass("residual", residual_of_observed, add_parts)
        squares = run_pass(rows, job, self.components_, run).value()
        return float(np.ldexp(np.sqrt(squares), exponent(self.components_)))

    def score(self, X: Any, y: Any = None) -> float:
        """
        Score the model on data, for searches and cross-validation; greater is better.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.
        y : None
            Ignored.

        Returns
        -------
        float
            The negative reconstruction error: `-reconstruction_err(X)`.
        """
        return -self.reconstruction_err(X)

    def _check_parameters(self, rows: Any) -> None:
        super()._check_parameters(rows)
        check_basis(self)

    def impute(self, X: Any) -> Any:
        """
        Fill missing entries; observed entries stay as they are.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data with missing entries, as for `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, p)
            The rows, missing entries filled by the posterior means of the low-rank model of the fit, but at least zero.
            After a fit on complete rows they are filled by the combination of components nearest to the observed
            entries, and a row without any stays NaN. Lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).

        Examples
        --------
        >>> import dask_dca as dca
        >>> rng = np.random.default_rng(0)
        >>> X = rng.dirichlet(np.ones(3), 500) @ rng.random((3, 20))
        >>> incomplete = np.where(rng.random(X.shape) < 0.3, np.nan, X)
        >>> filled = dca.NMF(3).fit(incomplete).impute(incomplete)
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
        Continue the fit with a batch of further rows, which is read once and not kept.

        The first batch fixes planes of all ones and Gaussian directions. The model keeps the two extreme rows so far on
        each of them, and chooses the anchors from these by successive projection. So any division of complete rows
        into batches, in any order, gives the same anchors, bit for bit.

        Parameters
        ----------
        X : array-like of shape (m, p)
            The next rows, as for `fit`. After `fit` the anchors represent the rows that it was fitted on. Missing
            entries are filled by the low-rank model of `fit`, or of the first batch that has any, which should be
            representative of later rows.
        y : None
            Ignored.

        Returns
        -------
        NMF
            The model of all rows so far, with fewer than k anchors while the rows span fewer dimensions. Row numbers
            count the rows in the order of arrival.

        Raises
        ------
        DCAError
            Unusable data or parameters; the model is unchanged.
        AttributeError
            There is no such method with `n_components="auto"`, `method="paper"`, `known`, or a value of `basis`,
            `ensemble` or `selection` that needs all rows at once; the cause of the error says which.

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
        return self._fit_more(X, self if self.__sklearn_is_fitted__() else None)

    @whole_fit
    def _fit_more(self, X: Any, earlier: Self | None) -> Self:
        return self._see_more(X, earlier, 0)

    def _see_more(self, X: Any, earlier: Self | None, since: int) -> Self:
        """Continue an earlier model with the rows of X from row number `since` on."""
        k = check_stream(self)
        if earlier is not None:
            keep_features_of(self, earlier)
        rows = self._rows(X, reset=earlier is None)
        check_grown(rows, since)
        stream = stream_of(earlier, self._anchoring(), k, rows.n_features)
        dtype = rows.output_dtype if earlier is None else np.result_type(earlier.components_, rows.output_dtype)
        missing = MissingCounts() if earlier is None else MissingCounts.of(earlier)
        stream, missing, self.n_passes_ = add_incomplete_rows(stream, rows, self._run(), k, missing, since=since)
        return self._keep_stream(stream, missing, k, dtype)

    def _keep_stream(self, stream: AnchorStream, missing: MissingCounts, n_components: int, dtype: Any) -> Self:
        found = stream_anchors(stream, n_components)
        self._keep_certificate(found)
        self.n_unobserved_rows_, self.n_missing_entries_ = missing.n_unobserved_rows, missing.n_missing_entries
        keep_completion(self, missing.completion)
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
        missing = MissingCounts.of(first) + MissingCounts.of(second)
        dtype = np.result_type(first.components_, second.components_)
        self.n_passes_ = 1
        return self._keep_stream(merge_streams(*streams), missing, k, dtype)

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"anchors": anchor_facts(self), "explained": self.explained_variance_ratio_}

    def _describe(self) -> list[str]:
        if self.basis_ == "rows":
            head = f"NMF: {self.n_components_} anchors of {self.n_features_in_} features"
            return [head, *anchor_table(self), *certificate(self)]
        head = f"NMF: {self.n_components_} components of {self.n_features_in_} features (basis {self.basis_!r})"
        note = "Components are not rows: the table has the rows nearest to them. Coverage is that of the anchors."
        return [head, note, *anchor_table(self), *certificate(self), *self._grown()]

    def _grown(self) -> list[str]:
        """The growth of the simplex, if one was found."""
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

"""Gaussian mixtures on data of any size, from anchors instead of restarts."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from dask_dca.anchoring.completion import warn_of_few_entries
from dask_dca.anchoring.parameters import check_count, check_integer, draw_seed
from dask_dca.engine.passes import Run, map_rows
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows, check_missing
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.tiles import tile_height
from dask_dca.engine.weights import weigh_rows
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.arrays import Floats
from dask_dca.models.attributes import MIXTURE
from dask_dca.models.base import whole_fit
from dask_dca.models.describe import passes_of
from dask_dca.models.em import InitMixin, count_in_init
from dask_dca.models.gaussians import (
    SUBSPACE,
    correlate,
    covariance_parameters,
    gaussians_of_factors,
    prepare_gaussians,
)
from dask_dca.models.mixture.densities import Densities, density_block, label_block, log_likelihood, posterior_block
from dask_dca.models.mixture.family import CovarianceSubspace, as_full
from dask_dca.models.mixture.fit import MixtureFit
from dask_dca.models.mixture.given import (
    MixtureSettings,
    begin_mixture,
    check_mixture,
    see_batch,
    start_of_mixture,
    step_mixture,
    with_form,
)
from dask_dca.models.mixture.incomplete import Observed, fit_observed, warn_of_left_out
from dask_dca.models.mixture.paper import fit_paper_mixture
from dask_dca.models.stream import RowStream


class GaussianMixture(InitMixin, DensityMixin, RowStream):
    """
    Gaussian mixture on chunked data of any size, in a few passes and without restarts.

    Parameters
    ----------
    n_components : int or "auto", default "auto"
        Number of components k; "auto" chooses the least BIC of one anchored fit for each number, with diagonal, common
        and full covariances if `covariance_type` is "auto" too.
    covariance_type : {"auto", "diag", "full", "tied", "spherical", "tied-spherical"}, default "auto"
        One covariance matrix for each component, diagonal, full or a multiple of the identity; or one that all
        share, full ("tied") or a multiple of the identity ("tied-spherical", the form of k-means). "auto" chooses, by
        leave-one-out density, from a family of shrunk covariances of which all of these are limits. "full" and "tied"
        are for up to 2,000 features; every step factors such matrices, so from some hundred features on "auto" is far
        faster.
    tails : {"auto", "normal", "heavy"}, default "auto"
        Components with "heavy" tails are Student's t distributions, which give rows far out less weight; their degrees
        of freedom are chosen by leave-one-out density. "auto" takes them if they raise this density by more than four
        standard errors. It does so with `covariance_type="auto"` only; with a number for `reg_covar`, with `init` and
        where entries are missing it means "normal".
    views : list of three column groups, optional
        For `method="paper"`: groups of features that are independent given the component, as slices, numbers or names
        of columns; by default a random split in three. The default method does not need views (Q-ablation).
    max_iter : int or "auto", default "auto"
        Maximum number of passes of expectation-maximisation over all rows, each followed by steps on the sample (up to
        65,536 rows); 0 leaves the parameters as fitted to the sample. "auto" is 5, and 0 with `method="paper"`.
    tol : float, default 1e-3
        The passes end early when another one would raise the mean log likelihood per row by less.
    reg_covar : float or "auto", default "auto"
        Added to every variance. "auto" adds the variance of rounding to the feature's resolution, shrinks covariances
        towards what the components have in common, and sets isolated rows aside as noise. A number is used as in
        scikit-learn, without shrinkage and noise rows.
    init : GaussianMixture or dict, optional
        Where to start instead of from anchors: a fitted model, or `means`, and `weights` and `covariances` (in the
        shape of their form) if known; otherwise these are estimated from the rows nearest to each mean. Passes are then
        plain expectation-maximisation, as in scikit-learn: nothing is shrunk, and no row is noise.
    means_init, weights_init, precisions_init : array-like, optional
        The same by scikit-learn's names, instead of `init`: means (k, p), weights (k,), and inverse covariances in the
        shape of their form.
    warm_start : bool, default False
        Start where the last fit of this model ended, as if it were `init`.
    method : {"robust", "paper"}, default "robust"
        The default, or the paper's algorithm as published: means are rows of the data, found by anchoring the moments
        of three views. A `max_iter` above 0 refines them.
    n_subproblems : int or "auto", default "auto"
        Number of random directions s; by default 5 k ln(k + 1).
    ensemble : str, default "auto"
        Where the directions are drawn from: "mixed", "row-space", "whitened", "gaussian", "sparse", "unit" or "data";
        for the paper's method the last four, or "pairs" (as `find_anchors` has it).
    missing : float or "implicit", optional
        Marker of missing entries beside NaN and masked entries: a number, or "implicit" for entries that sparse rows
        don't store.
    random_state : int, Generator, RandomState or None, default 0
        Seed of views and directions. An integer gives the same model on every fit; None draws a new seed each time.
    retries : int, default 3
        How often a failed task is retried on a cluster.
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are kept. If a fit that was killed is started again with the
        same data and parameters, it repeats only the unfinished pass, and its result is bit for bit the same.
    verbose : bool, default False
        Show the passes' progress on standard error.

    Attributes
    ----------
    weights_ : ndarray of float64, shape (k,)
        Weights of the components, which sum to one.
    means_ : ndarray of float64, shape (k, p)
        Means of the components.
    covariance_type_ : str
        Form of the covariances, which "auto" chose. It can also be "subspace": full covariances in the leading
        principal directions of many features, and one variance across them.
    covariances_ : ndarray of float64
        Covariances of the components: "full" (k, p, p), "tied" (p, p), "diag" (k, p), "spherical" (k,),
        "tied-spherical" (), "subspace" (k, q, q).
    precisions_cholesky_ : ndarray of float64
        Factor of each inverse covariance, in the same shape, as in scikit-learn.
    subspace_, noise_variance_ : ndarray of float64, shape (q, p), and float
        Where `covariance_type_` is "subspace": its orthonormal directions, and the variance across it.
    degrees_of_freedom_ : float
        Degrees of freedom of heavy tails; infinite if components are normal. With heavy tails `covariances_` are scale
        matrices: covariances are these times degrees / (degrees - 2).
    pulls_ : ndarray of float64, shape (2,)
        Weights, as numbers of rows, with which covariances are shrunk towards their target, and the common shape
        towards a rounder one; 2**-32 is practically none.
    shrinkage_target_ : str
        What covariances are shrunk towards: a common shape, scaled to each component's size ("scaled") or at one size
        ("common"), or the component's own diagonal ("diagonal").
    outliers_ : ndarray of int64, shape (o,)
        Rows of the sample that are noise, far from all others: they have no weight.
    n_outliers_ : int
        Number of rows of the whole data that are noise; 0 where entries are missing.
    n_unobserved_rows_ : int
        Number of rows without an observed entry, which the fit left out.
    n_missing_entries_ : int
        Number of missing entries.
    n_components_ : int
        Number of components: fewer than asked for where the data have fewer distinct rows.
    anchor_indices_ : ndarray of int64, shape (k,)
        For each component a row of the data that represents it: the one nearest its mean, by its own covariance. With
        method "paper" the anchors themselves.
    anchors_ : ndarray of shape (k, p)
        The rows with these indices.
    extreme_indices_ : ndarray of int64, shape (k,)
        The row of each component that is furthest out along most directions; -1 if none is along any.
    votes_, vote_share_ : ndarray of shape (k,)
        Number and share of the directions along which a row of the component is furthest out on either side.
    vote_confidence_ : ndarray of float64, shape (k, 2)
        Wilson's 95 % confidence bounds on that share.
    candidates_, candidate_votes_ : ndarray of int64, shape (c,)
        All rows that are furthest out along some direction, and along how many: the vote histogram.
    n_subproblems_ : int
        Number of directions.
    signature_axes_ : ndarray of float64, shape (2, p)
        The two leading directions of the subspace in which the components were found.
    bic_curve_ : ndarray of float64, shape (m, 2)
        Numbers of components that "auto" tried, and their least BIC on the sample.
    log_likelihoods_ : ndarray of float64, shape (m + 1,)
        Mean log density of the rows that are not noise, before each of m steps and at the end, where it is predicted if
        there are more rows than the sample has. The last is also `lower_bound_`; after a batch of `partial_fit` it is
        that of the batch before the step.
    n_iter_ : int
        Number of passes after which parameters were updated.
    converged_ : bool
        Whether another pass would raise the mean log likelihood per row by less than `tol`.
    n_features_in_, n_passes_ : int
        Number of features p, and how often the fit read all rows (samples of them are not counted).
    feature_names_in_ : ndarray of str, shape (p,)
        Names of the features, if the input had them.
    n_samples_seen_ : int
        Number of rows that the model was fitted on, in all batches of `partial_fit`.
    first_counts_, first_sums_, first_products_, first_tallies_ : ndarray
        State of `partial_fit`: sums of the first fit, for each component about `stream_origins_`, and its counts.
    later_counts_, later_sums_, later_products_ : ndarray
        The same sums of later batches.
    stream_origins_, stream_floor_, stream_evidence_, stream_least_ : ndarray or float
        State of `partial_fit`: what the M-step of later batches needs of the fit.

    See Also
    --------
    sklearn.mixture.GaussianMixture : In memory, from random starts.

    Notes
    -----
    Anchors are chosen from means of tails along random directions in the leading principal coordinates of the sample,
    with raw features and with features of unit variance. Moves split one component and merge two others, or split two
    components again together. Starts, moves and the form of the covariances are chosen by leave-one-out density.
    Parameters are float64 for data of any dtype. `method="paper"` anchors the moments of three views, as in section 3.2
    of Zhou, Bilmes and Guestrin, NIPS 2014.

    Examples
    --------
    >>> import dask_dca as dca
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat(np.eye(3, 12) * 9, 40, axis=0) + rng.standard_normal((120, 12))
    >>> model = dca.GaussianMixture(3).fit(X)
    >>> sorted(np.bincount(model.predict(X)).tolist())
    [40, 40, 40]
    """

    _fitted: ClassVar = MIXTURE
    _mark: ClassVar = "means_"
    _sums: ClassVar = ("counts", "sums", "products")
    _tallies: ClassVar = ("n_samples_seen_", "n_iter_", "n_outliers_")
    _per_row: ClassVar = "predict_proba"
    _missing_note: ClassVar = "Heavy tails and noise rows were not looked for, as that needs complete rows."
    _has_views: ClassVar = True
    _told: ClassVar = ("covariance_type", "n_outliers", "lower_bound", "n_iter", "converged", "n_subproblems",
                       "bic_curve", "weights", "anchor_indices", "extreme_indices", "votes")  # fmt: skip

    covariance_type_: str
    weights_: Floats
    means_: Floats
    covariances_: Floats
    precisions_cholesky_: Floats
    subspace_: Floats
    noise_variance_: float
    degrees_of_freedom_: float = math.inf  # of models saved before there were heavy tails
    n_outliers_: int
    n_components_: int

    def __init__(
        self,
        n_components: int | str = "auto",
        covariance_type: str = "auto",
        *,
        tails: str = "auto",
        views: Any = None,
        max_iter: int | str = "auto",
        tol: float = 1e-3,
        reg_covar: float | str = "auto",
        init: Any = None,
        means_init: Any = None,
        weights_init: Any = None,
        precisions_init: Any = None,
        warm_start: bool = False,
        method: str = "robust",
        n_subproblems: int | str = "auto",
        ensemble: str = "auto",
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
        Fit the mixture.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data of any sign: NumPy, SciPy sparse, Dask array or DataFrame, xarray, zarr array or its path.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
            How often each row counts: NumPy, or a Dask array in any chunks. An integer weight is equivalent to that
            many copies of the row; a row of weight zero is ignored (method "robust" only).
        resume : GaussianMixture, optional
            A model of the first rows of X, to which rows have been appended since: only the blocks after these rows are
            read. The result is that of `partial_fit` with the new rows.

        Returns
        -------
        GaussianMixture
            The fitted model.

        Raises
        ------
        DCAError
            Infinite or empty data, or unusable parameters; the message says what to do.

        Notes
        -----
        Missing entries are NaN, masked, or what `missing` says. The search then uses a sample completed by a Bayesian
        low-rank model, and passes maximise the likelihood of the observed entries: missing ones enter by their
        conditional means and covariances. A `MissingEntriesWarning` tells which steps the fit leaves out, and a
        `FewEntriesWarning` is issued if too few entries were observed.
        """
        if sample_weight is not None and (resume is not None or self.method == "paper"):
            what = "a stream takes rows as they are" if resume is not None else "method='paper' has no weights"
            msg = f"{what}: pass sample_weight=None"
            raise InvalidParameterError(msg)
        if resume is not None:
            return self._resumed(resume, X)
        rows = weigh_rows(self._rows(X, reset=True), sample_weight, self._run())
        count, settings = self._checked(rows)
        run, given = self._run(rows), start_of_mixture(self)
        with one_blas_thread():
            if self.method == "paper":
                if given:
                    msg = "method='paper' starts from the paper's anchors; leave init out"
                    raise InvalidParameterError(msg)
                seen = Observed(fit_paper_mixture(rows, count, settings, run), rows)
            else:
                settings = with_form(settings, self._start(), given) if given else settings
                seen = fit_observed(rows, count_in_init(given, count), settings, run, given)
            found = seen.fit
            self.__dict__.update(found.certificate)
            chosen, places = np.unique(self.anchor_indices_, return_inverse=True)
            self.anchors_ = fetch_rows(seen.rows, chosen, run)[places].astype(rows.output_dtype)
            self.n_passes_ = run.n_passes
            self._keep(found)
            self.n_unobserved_rows_, self.n_missing_entries_ = seen.n_unobserved_rows, seen.n_missing
            if self.method == "robust" and seen.n_observed is None:
                self._begin_stream(begin_mixture(self, found), rows.n_rows)
        self._warn_of_holes(rows, seen)
        return self

    def predict(self, X: Any) -> Any:
        """
        Find the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.

        Returns
        -------
        ndarray or dask.array.Array of int64, shape (n,)
            Component numbers; lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        rows, densities = self._prepared(X)
        return map_rows(rows, label_block, densities, None).astype(np.int64)

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """
        Fit the mixture and find the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.
        y : None
            Ignored.
        **fit_params : object
            Keyword arguments of `fit`: `sample_weight`, `resume`.

        Returns
        -------
        ndarray or dask.array.Array of int64, shape (n,)
            Component numbers, as `predict` returns them.
        """
        return self.fit(X, y, **fit_params).predict(X)

    def predict_proba(self, X: Any) -> Any:
        """
        Find the posterior probability of each component for each row.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, k)
            Probabilities, in the input's floating dtype, at least float32; lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        rows, densities = self._prepared(X)
        return map_rows(rows, posterior_block, densities, self.n_components_)

    def score_samples(self, X: Any) -> Any:
        """
        Evaluate the log density of each row.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n,)
            Log densities, in the input's floating dtype, at least float32; lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        rows, densities = self._prepared(X)
        return map_rows(rows, density_block, densities, None)

    def score(self, X: Any, y: Any = None) -> float:
        """
        Compute the mean log density per row, in one pass.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.
        y : None
            Ignored.

        Returns
        -------
        float
            Mean log density, bit for bit the same for any chunking.

        Raises
        ------
        DCAError
            Unusable data.
        """
        rows, densities = self._prepared(X)
        return log_likelihood(rows, densities, self._run()) / rows.n_rows

    def bic(self, X: Any) -> float:
        """
        Compute the Bayesian information criterion, in one pass.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.

        Returns
        -------
        float
            The lower the better.
        """
        rows, densities = self._prepared(X)
        return self._n_parameters() * float(np.log(rows.n_rows)) - 2.0 * log_likelihood(rows, densities, self._run())

    def aic(self, X: Any) -> float:
        """
        Compute Akaike's information criterion, in one pass.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.

        Returns
        -------
        float
            The lower the better.
        """
        rows, densities = self._prepared(X)
        return 2.0 * self._n_parameters() - 2.0 * log_likelihood(rows, densities, self._run())

    @one_blas_thread()
    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Floats, NDArray[np.int64]]:
        """
        Draw rows from the mixture.

        Parameters
        ----------
        n_samples : int, default 1
            Number of rows.
        random_state : int, Generator, RandomState or None, default None
            Seed; that of the model if None.

        Returns
        -------
        X : ndarray of float64, shape (n_samples, p)
            The rows, component by component.
        y : ndarray of int64, shape (n_samples,)
            The component that each row was drawn from.

        Raises
        ------
        InvalidParameterError
            `n_samples` is not a positive integer.
        """
        check_is_fitted(self)
        n = check_integer("n_samples", n_samples, 1)
        rng = np.random.default_rng(draw_seed(self.random_state if random_state is None else random_state))
        labels = np.repeat(np.arange(self.n_components_), rng.multinomial(n, self.weights_))
        noise, space = rng.standard_normal((n, self.n_features_in_)), self._subspace()
        degrees, far = self.degrees_of_freedom_, np.ones((n, 1))
        if math.isfinite(degrees):
            far = np.sqrt(degrees / rng.chisquare(degrees, (n, 1)))
        if space is None:
            return self.means_[labels] + far * correlate(noise, labels, self.covariances_, self._form), labels
        within = noise @ space.axes
        across = np.sqrt(space.noise) * (noise - within @ space.axes.T)
        drawn = far * correlate(within, labels, self.covariances_, "full")
        return self.means_[labels] + drawn @ space.axes.T + across, labels

    def _n_parameters(self) -> int:
        (k, p), q = self.means_.shape, len(self.covariances_[0]) if self.covariance_type_ == SUBSPACE else 0
        others = k - 1 + math.isfinite(self.degrees_of_freedom_)
        if q:  # means and covariances in the subspace; its axes, a point of it, and the variance across it
            return k * q + others + covariance_parameters("full", k, q) + q * (p - q) + (p - q) + 1
        return k * p + others + covariance_parameters(self.covariance_type_, k, p)

    def _subspace(self) -> CovarianceSubspace | None:
        if self.covariance_type_ != SUBSPACE:
            return None
        return CovarianceSubspace(
            self.weights_ @ self.means_, np.ascontiguousarray(self.subspace_.T), float(self.noise_variance_)
        )

    @one_blas_thread()
    def _prepared(self, X: Any) -> tuple[Rows, Densities]:
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        return rows, self._densities(rows)

    def _densities(self, rows: Rows) -> Densities:
        space = self._subspace()
        means, form = self.means_, self.covariance_type_
        if space is not None:
            means, form = (means - space.origin) @ space.axes, "full"
        gaussians = gaussians_of_factors(means, self.precisions_cholesky_, form, degrees=self.degrees_of_freedom_)
        return Densities(gaussians, np.log(self.weights_), tile_height(rows.n_rows, rows.n_features), space)

    def _batch_e_step(self, rows: Rows, edges: Any, run: Run, so_far: Any) -> tuple[dict[str, Floats], float]:
        sums, seen = see_batch(self, rows, self._densities(rows), run)
        self.n_outliers_ += seen.n_outliers
        return sums, seen.log_likelihood

    def _batch_m_step(self, sums: dict[str, Floats]) -> None:
        step_mixture(self, sums)

    def _warn_of_holes(self, rows: Rows, seen: Observed) -> None:
        if seen.n_observed is not None:
            warn_of_left_out(rows, seen)
            n_entries = (rows.n_rows - seen.n_unobserved_rows) * rows.n_features
            remedy = "use fewer components, or covariance_type='diag'"
            n = self._n_parameters()
            warn_of_few_entries(seen.n_observed, n_entries, n, in_blocks=seen.in_blocks, remedy=remedy)

    def _checked(self, rows: Any) -> tuple[int | None, MixtureSettings]:
        """Check all parameters; return the number of components, None for "auto", and the others."""
        anchoring = self._anchoring()
        count = check_count(self.n_components, rows, "n_components")
        return count, check_mixture(self, rows, anchoring, count)

    def _check_parameters(self, rows: Any) -> None:
        self._checked(rows)
        check_missing(self.missing)

    def _keep(self, found: MixtureFit) -> None:
        refined, start = found.refined, found.start
        mixture = refined.model
        self.covariance_type_ = mixture.covariance_type
        if start.subspace is None:
            means = mixture.means + found.centre
        else:
            space = start.subspace.shifted(found.centre)
            self.covariance_type_, means = SUBSPACE, space.to_features(mixture.means)
            self.subspace_, self.noise_variance_ = np.ascontiguousarray(space.axes.T), space.noise
            if mixture.covariance_type == "diag":
                mixture = as_full(mixture)
        self.weights_, self.covariances_ = mixture.weights, mixture.covariances[()]
        prepared = prepare_gaussians(mixture.means, mixture.covariances, mixture.covariance_type)
        self.precisions_cholesky_ = prepared.precisions_cholesky
        self.pulls_ = np.array([start.shrinkage.pull, start.shrinkage.common_pull])
        self.shrinkage_target_, self.degrees_of_freedom_ = start.shrinkage.target, float(mixture.degrees)
        self.n_components_ = len(means)
        self.__dict__.update(refined.history)
        self.n_outliers_ = refined.seen.n_outliers
        self.means_ = means

    def _describe(self) -> list[str]:
        k, p = self.means_.shape
        lines = [f"GaussianMixture: {k} components of {p} features, covariances {self.covariance_type_}"]
        if len(self.bic_curve_):
            least, most = self.bic_curve_[:, 0].min(), self.bic_curve_[:, 0].max()
            lines.append(
                f"Of {least:.0f} to {most:.0f} components, which n_components='auto' tried, {k} have the least BIC."
            )
        lines.append(f"{'component':>9} {'weight':>8} {'row at its mean':>16} {'votes':>7} {'furthest row':>13}")
        for j in range(k):
            furthest = str(self.extreme_indices_[j]) if self.extreme_indices_[j] >= 0 else "-"
            head = f"{j:>9} {self.weights_[j]:>8.4f} {self.anchor_indices_[j]:>16}"
            lines.append(f"{head} {self.votes_[j]:>7} {furthest:>13}")
        settled = "the last changed it by less than tol" if self.converged_ else "more passes would raise it further"
        lines.append(f"Mean log density per row {self.lower_bound_:.6g} after {passes_of(self)}; {settled}.")
        if math.isfinite(self.degrees_of_freedom_):
            lines.append(f"Tails are heavy: Student's t of {self.degrees_of_freedom_:g} degrees of freedom.")
        if self.n_outliers_:
            lines.append(f"{self.n_outliers_} rows are noise, far from all others: they have no weight.")
        inside = int((self.votes_ == 0).sum())
        if inside:
            lines.append(f"{inside} of the components lie between others: no row of theirs is ever furthest out.")
        return lines

    @property
    def lower_bound_(self) -> float:  # numpydoc ignore=RT01
        """The last of `log_likelihoods_`, as scikit-learn calls it."""
        return float(self.log_likelihoods_[-1])

    @property
    def precisions_(self) -> Floats:  # numpydoc ignore=RT01
        """Inverse covariances, in the shape of `covariances_`, as scikit-learn has them."""
        factors = np.asarray(self.precisions_cholesky_)
        return factors @ factors.swapaxes(-1, -2) if self._form in ("full", "tied", SUBSPACE) else factors**2

    @property
    def _form(self) -> str:
        """Form of the fitted covariances; before a fit, the parameter."""
        return str(getattr(self, "covariance_type_", self.covariance_type))

"""What a fitted Gaussian mixture says of rows: components, probabilities, densities, and rows drawn from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from dask_dca.engine.blockwise import map_rows
from dask_dca.engine.mixture_passes import Densities, density_block, label_block, log_likelihood, posterior_block
from dask_dca.engine.threads import one_blas_thread
from dask_dca.engine.tiles import tile_height
from dask_dca.kernels.gaussian import gaussians_of_factors
from dask_dca.kernels.gaussian_forms import covariance_parameters
from dask_dca.models.base import AnchorModel
from dask_dca.models.parameters import check_integer, draw_seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["MixtureDensity"]


class MixtureDensity(DensityMixin, AnchorModel):
    """Base of mixtures: what needs the fitted parameters only; not for direct use."""

    covariance_type: str
    weights_: Floats
    means_: Floats
    covariances_: Floats
    precisions_cholesky_: Floats
    n_components_: int

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

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """
        Fit the mixture and find the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.
        y : None
            Ignored.

        Returns
        -------
        ndarray or dask.array.Array of int64, shape (n,)
            Component numbers, as `predict` finds them afterwards.
        """
        return self.fit(X, y).predict(X)

    def predict_proba(self, X: Any) -> Any:
        """
        Find the probability of each component, given the row.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, k)
            Probabilities, in the input's floating dtype; lazy for chunked input.

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
            Log densities, in the input's floating dtype; lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        rows, densities = self._prepared(X)
        return map_rows(rows, density_block, densities, None)

    def score(self, X: Any, y: Any = None) -> float:
        """
        Average the log density over rows, in one pass.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.
        y : None
            Ignored.

        Returns
        -------
        float
            Mean log density: the same bits for any chunking.

        Raises
        ------
        DCAError
            Unusable data.
        """
        del y
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
    def sample(self, n_samples: int = 1) -> tuple[Floats, NDArray[np.int64]]:
        """
        Draw rows from the mixture.

        Parameters
        ----------
        n_samples : int, default 1
            How many.

        Returns
        -------
        X : ndarray of float64, shape (n_samples, p)
            The rows, component by component.
        y : ndarray of int64, shape (n_samples,)
            Their components.

        Raises
        ------
        InvalidParameterError
            `n_samples` is no positive integer.
        """
        check_is_fitted(self)
        n = check_integer("n_samples", n_samples, 1)
        rng = np.random.default_rng(draw_seed(self.random_state))
        labels = np.repeat(np.arange(self.n_components_), rng.multinomial(n, self.weights_))
        noise = rng.standard_normal((n, self.n_features_in_))
        if self.covariance_type == "tied-spherical":
            noise *= np.sqrt(self.covariances_)
        elif self.covariance_type == "spherical":
            noise *= np.sqrt(self.covariances_)[labels, None]
        elif self.covariance_type == "diag":
            noise *= np.sqrt(self.covariances_)[labels]
        else:
            p, k = self.n_features_in_, self.n_components_
            factors = np.broadcast_to(np.linalg.cholesky(self.covariances_), (k, p, p))
            for j, factor in enumerate(factors):
                noise[labels == j] = noise[labels == j] @ factor.T
        return self.means_[labels] + noise, labels

    def _n_parameters(self) -> int:
        k, p = self.means_.shape
        return k * p + k - 1 + covariance_parameters(self.covariance_type, k, p)

    @one_blas_thread()
    def _prepared(self, X: Any) -> tuple[Rows, Densities]:
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        gaussians = gaussians_of_factors(self.means_, self.precisions_cholesky_, self.covariance_type)
        return rows, Densities(gaussians, np.log(self.weights_), tile_height(rows.n_rows, rows.n_features))

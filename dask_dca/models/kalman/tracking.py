"""What a Kalman filter does by its parameters alone: filter, follow, smooth, forecast, score, draw."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dask_dca.anchoring.parameters import check_integer, draw_seed
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.errors import InvalidParameterError
from dask_dca.models.kalman.filter import update_covariance
from dask_dca.models.kalman.states import forecasts, likelihood_of, predictions, states_of, tracker_for
from dask_dca.models.kalman.system import (
    PARAMETERS,
    LinearSystem,
    covariance_root,
    incomplete_numbers,
    prepare_observer,
    safe_system,
    sample_system,
    split_numbers,
)
from dask_dca.models.sequences import SequenceModel, by_groups, check_vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats
    from dask_dca.models.kalman.pieces import PreparedFilter


def next_state(system: LinearSystem, before: tuple[Floats, Floats] | None, frame: Floats) -> tuple[Floats, Floats]:
    """Filter one frame.

    before: mean (k,) and covariance (k, k) of the state at the frame before; None where a sequence begins; frame (p,):
    NaN where an entry is missing. Returns the mean and the covariance at this one.
    """
    if before is None:
        mean, covariance = system.initial_mean, system.initial_covariance
    else:
        mean = system.transition @ before[0]
        covariance = system.transition @ before[1] @ system.transition.T + system.transition_covariance
    observer = prepare_observer(safe_system(system))
    y, _, factor = (part[0] for part in split_numbers(incomplete_numbers(observer, frame[None]), len(mean)))
    update = update_covariance(covariance_root(covariance), factor)
    return mean + update.gain @ (y - factor @ mean), update.filtered


class KalmanTracking(SequenceModel):
    """Methods of a Kalman filter that need its parameters alone; not for direct use."""

    transition_matrices_: Floats
    observation_matrices_: Floats
    transition_covariance_: Floats
    observation_covariance_: Floats
    initial_state_mean_: Floats
    initial_state_covariance_: Floats
    observation_offsets_: Floats

    def filter(self, X: Any, lengths: Any = None, *, groups: Any = None) -> tuple[Any, Any]:
        """
        Estimate the state of each frame from the frames up to it.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames; NaN or masked where an entry is missing, whole frames too.
        lengths : array-like of int, shape (m,), optional
            Frames of each sequence, one after the other; one sequence if None.
        groups : array-like of shape (n,) or str, optional
            Instead of lengths the id of each frame's sequence; or its name as a column or index level of a DataFrame,
            or as a coordinate of an xarray.DataArray.

        Returns
        -------
        means : ndarray or dask.array.Array of shape (n, k)
            Means of the states; lazy for chunked input.
        covariances : ndarray or dask.array.Array of shape (n, k, k)
            Their covariances, exact for every frame.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        return states_of(*self._tracked(X, lengths, groups), smooth=False)

    def smooth(self, X: Any, lengths: Any = None, *, groups: Any = None) -> tuple[Any, Any]:
        """
        Estimate the state of each frame from all frames of its sequence.

        Parameters
        ----------
        X, lengths, groups : object
            As `filter` takes them.

        Returns
        -------
        means : ndarray or dask.array.Array of shape (n, k)
            Means of the states; lazy for chunked input.
        covariances : ndarray or dask.array.Array of shape (n, k, k)
            Their covariances, exact for every frame.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        return states_of(*self._tracked(X, lengths, groups), smooth=True)

    @one_blas_thread()
    def filter_update(
        self, filtered_state_mean: Any = None, filtered_state_covariance: Any = None, observation: Any = None
    ) -> tuple[Floats, Floats]:
        """
        Take one more frame in, as it comes: `filter` frame by frame.

        Parameters
        ----------
        filtered_state_mean : array-like of shape (k,), optional
            Mean of the state at the frame before, from `filter` or the last call; None where a sequence begins.
        filtered_state_covariance : array-like of shape (k, k), optional
            Its covariance.
        observation : array-like of shape (p,), optional
            The frame; NaN where an entry is missing, None if all are.

        Returns
        -------
        mean : ndarray of float64, shape (k,)
            Mean of the state at this frame.
        covariance : ndarray of float64, shape (k, k)
            Its covariance.

        Raises
        ------
        DCAError
            Another number of states or features, or infinite entries.

        Examples
        --------
        >>> import dask_dca as dca
        >>> model = dca.KalmanFilter.from_parameters([[0.9]], [[1.0]], [[1.0]], [[1.0]])
        >>> mean, covariance = model.filter_update(observation=[2.0])
        >>> mean, covariance = model.filter_update(mean, covariance, [1.0])
        >>> mean.round(3).tolist(), covariance.round(3).tolist()
        ([0.958], [[0.584]])
        """
        check_is_fitted(self)
        system = self._system()
        k, p, before = system.n_dim_state, system.n_dim_obs, None
        if filtered_state_mean is not None:
            spread = np.asarray(filtered_state_covariance, dtype=np.float64)
            covariance = check_vector("filtered_state_covariance", spread, k * k).reshape(k, k)
            before = check_vector("filtered_state_mean", filtered_state_mean, k), covariance
        given = np.full(p, np.nan) if observation is None else np.ma.filled(observation, np.nan)
        return next_state(system, before, check_vector("observation", given, p, missing=True))

    def predict(self, X: Any, n_steps: int = 1, lengths: Any = None, *, groups: Any = None) -> Any:
        """
        Predict frames some steps ahead, from every frame on.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames, as for `filter`.
        n_steps : int, default 1
            How far ahead.
        lengths : array-like of int, shape (m,), optional
            As for `filter`.
        groups : array-like of shape (n,) or str, optional
            Instead of lengths the id of each frame's sequence; or its name as a column or index level of a DataFrame,
            or as a coordinate of an xarray.DataArray.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, p)
            Row t is what frame t + n_steps of its sequence is expected to be, given its frames up to t; the last rows
            look beyond the data. Lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed), or no positive number of steps.
        """
        return predictions(*self._tracked(X, lengths, groups), check_integer("n_steps", n_steps, 1))

    @one_blas_thread()
    def forecast(self, X: Any, n_steps: int = 1, lengths: Any = None, *, groups: Any = None) -> tuple[Floats, Floats]:
        """
        Predict the frames that follow the last sequence.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames, as for `filter`. Of chunked data the last blocks alone are read.
        n_steps : int, default 1
            How many frames.
        lengths : array-like of int, shape (m,), optional
            As for `filter`.
        groups : array-like of shape (n,) or str, optional
            Instead of lengths the id of each frame's sequence; or its name as a column or index level of a DataFrame,
            or as a coordinate of an xarray.DataArray.

        Returns
        -------
        means : ndarray of float64, shape (n_steps, p)
            Expected frames.
        variances : ndarray of float64, shape (n_steps, p)
            Variances of their entries.

        Raises
        ------
        DCAError
            Unusable data, or no positive number of steps.
        """
        return forecasts(*self._tracked(X, lengths, groups), check_integer("n_steps", n_steps, 1), self._run())

    def score(self, X: Any, y: Any = None, *, lengths: Any = None, groups: Any = None) -> float:
        """
        Compute the log likelihood, as `loglikelihood` does; larger is better.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames, as for `fit`.
        y : None
            Ignored; for hmmlearn's callers, lengths by position are taken, with a warning.
        lengths : array-like of int, shape (m,), optional
            Frames of each sequence; one sequence if None.
        groups : array-like of shape (n,) or str, optional
            Instead of lengths the id of each frame's sequence; or its name as a column or index level of a DataFrame,
            or as a coordinate of an xarray.DataArray.

        Returns
        -------
        float
            Log likelihood of all that was observed, of all sequences together.

        Examples
        --------
        >>> import dask_dca as dca
        >>> model = dca.KalmanFilter.from_parameters([[0.9]], [[1.0]], [[1.0]], [[1.0]])
        >>> round(model.score(np.zeros((3, 1))), 2)
        -3.99
        """
        return likelihood_of(*self._tracked(X, lengths, groups, y), self._run())

    def loglikelihood(self, X: Any, lengths: Any = None, *, groups: Any = None) -> float:
        """
        Work out the logarithm of the density of all frames, in one pass.

        Parameters
        ----------
        X, lengths, groups : object
            As `filter` takes them.

        Returns
        -------
        float
            Sum over the frames; missing entries count for nothing.

        Raises
        ------
        DCAError
            Unusable data.
        """
        return self.score(X, lengths=lengths, groups=groups)

    @one_blas_thread()
    def sample(self, n_timesteps: int, *, random_state: Any = None) -> tuple[Floats, Floats]:
        """
        Draw a sequence from the model.

        Parameters
        ----------
        n_timesteps : int
            How many frames.
        random_state : int, Generator, RandomState or None, default None
            Seed of the noise; the model's own `random_state` if None.

        Returns
        -------
        states : ndarray of float64, shape (n_timesteps, k)
            States.
        observations : ndarray of float64, shape (n_timesteps, p)
            Frames.
        """
        check_is_fitted(self)
        seed = draw_seed(self.random_state if random_state is None else random_state)
        return sample_system(self._system(), check_integer("n_timesteps", n_timesteps, 1), np.random.default_rng(seed))

    def _system(self) -> LinearSystem:
        return checked_system({name: getattr(self, f"{name}_") for name in PARAMETERS})

    def _tracked(self, X: Any, lengths: Any, groups: Any, y: Any = None) -> tuple[Rows, PreparedFilter]:
        """Frames, and the filter that is ready for them."""
        check_is_fitted(self)
        X, lengths = by_groups(X, lengths, groups)
        rows = self._rows(X, reset=False)
        with one_blas_thread():
            return rows, tracker_for(self._system(), rows, self._edges(rows, self._lengths(rows, y, lengths)))


def checked_system(values: Mapping[str, ArrayLike]) -> LinearSystem:
    """Check that parameters fit together.

    values: by their names, all of them.
    Raises InvalidParameterError: shapes that do not fit, numbers that are not finite, or a covariance that is none.
    """
    both = ("transition_matrices", "observation_matrices")
    values = {**values, **{name: np.atleast_2d(np.asarray(values[name], dtype=np.float64)) for name in both}}
    p, k = np.shape(values["observation_matrices"])
    shapes: tuple[list[tuple[int, ...]], ...]
    shapes = ([(k, k)], [(p, k)], [(k, k)], [(p, p), (p,)], [(k,)], [(k, k)], [(p,)])
    return LinearSystem(*(_parameter(name, values[name], own) for name, own in zip(PARAMETERS, shapes, strict=True)))


def _parameter(name: str, value: Any, shapes: list[tuple[int, ...]]) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0 and math.prod(shapes[0]) == 1:  # as pykalman takes it
        array = array.reshape(shapes[0])
    if array.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        msg = f"{name} has shape {array.shape}, where the other parameters need {wanted}"
        raise InvalidParameterError(msg)
    if not np.isfinite(array).all():
        msg = f"{name} holds NaN or infinity; pass finite numbers"
        raise InvalidParameterError(msg)
    if name.endswith("covariance"):
        scale = float(np.abs(array).max(initial=0.0))
        least = float(array.min() if array.ndim == 1 else np.linalg.eigvalsh(array)[0])
        if least < -1e-8 * scale or (array.ndim == 2 and float(np.abs(array - array.T).max()) > 1e-8 * scale):
            msg = f"{name} is no covariance: it must be symmetric without negative eigenvalues (least: {least:.3g})"
            raise InvalidParameterError(msg)
    return array

"""Base class of the models: parameters, checks of the input, and fits that change a model only when they succeed."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from dask_dca import __version__
from dask_dca.anchoring.parameters import Settings, check_count, check_integer, check_settings
from dask_dca.engine.advice import Form, form_of, in_terms_of
from dask_dca.engine.checkpoint import Checkpoint, open_checkpoint
from dask_dca.engine.cubes import Cube
from dask_dca.engine.files import expand_home
from dask_dca.engine.passes import Reads, Run
from dask_dca.engine.process import numpy_defaults, one_blas_thread
from dask_dca.engine.rows import Rows, as_rows, check_missing, mark_missing
from dask_dca.errors import InvalidInputError, InvalidParameterError, without_secrets
from dask_dca.models.attributes import COMMON
from dask_dca.models.describe import plain_fact
from dask_dca.models.fitted import Attribute
from dask_dca.models.foreign import KeywordAdvice
from dask_dca.models.labelled import as_dataset, check_features, cube_of, keep_features, or_groups

_NEUTRAL_PARAMETERS: Final = ("checkpoint", "retries", "verbose")  # parameters that don't change the result
FITTED_NAMES: Final = "_names_of_fit"  # attribute that holds the names of the attributes that the last fit set
_BEFORE: Final = "_before_fit"  # attribute that holds the earlier model during a fit
_COMPUTING_METHODS: Final = ("_describe", "_facts", "_repr_mimebundle_")  # private methods that compute, too
M = TypeVar("M")
P = ParamSpec("P")


def fit_checkpoint(model: Any, rows: Rows) -> Checkpoint:
    """Open the checkpoint in which a fit keeps its passes over these rows.

    Raises InvalidParameterError: `checkpoint` is not a path, or `random_state` is not an integer, so that no two fits
    are the same; CheckpointError: the checkpoint belongs to another fit, or can't be used.
    """
    path, seed = model.checkpoint, model.random_state
    if not isinstance(path, str | os.PathLike):
        msg = f"checkpoint must be a path or URL; received {path!r}"
        raise InvalidParameterError(msg)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        msg = f"a checkpoint needs an integer random_state, since a resumed fit must draw the same; received {seed!r}"
        raise InvalidParameterError(msg)
    given = {
        name: _plain(value) for name, value in model.get_params(deep=False).items() if name not in _NEUTRAL_PARAMETERS
    }
    if given.get("warm_start"):
        given["init"] = _plain(model._start())
    facts = {"model": type(model).__name__, "version": __version__, "parameters": given}
    # the content is compared when it is read
    data = {"rows": rows.n_rows, "features": rows.n_features, "dtype": rows.dtype.str}
    return open_checkpoint(expand_home(path), facts | {"data": data}, rows.source)


def _plain(value: Any) -> Any:
    """Convert a parameter to a value that JSON can represent."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict | AnchorModel):  # a start
        values = value if isinstance(value, dict) else {key: own for key, own in vars(value).items() if key[-1] == "_"}
        return {key: _plain(own) for key, own in values.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def whole_fit(fit: Callable[Concatenate[M, P], M]) -> Callable[Concatenate[M, P], M]:
    """Decorate a method that fits, so that it changes the model only if it succeeds, and returns the model.

    The method runs on a copy without the attributes of an earlier fit, whose state the model takes over in one step at
    the end. If it fails or is interrupted, the model stays as it was; until it ends, other threads use the earlier fit.
    The results that an interrupted fit requested are released on the cluster.
    """

    @functools.wraps(fit)
    def _fitted(self: M, /, *args: P.args, **kwargs: P.kwargs) -> M:
        earlier = {FITTED_NAMES, *vars(self).get(FITTED_NAMES, ())} - {*getattr(self, "_starting_names", ())}
        start = {name: value for name, value in vars(self).items() if name not in earlier}
        trial: Any = object.__new__(type(self))
        vars(trial).update(start)
        vars(trial)[_BEFORE] = self
        _refuse_arrays(self)
        with one_blas_thread():
            try:
                fit(trial, *args, **kwargs)
            except InvalidInputError:
                given = args[0] if args else kwargs.get("X")
                form = replace(trial._form_of(given), weighted=kwargs.get("sample_weight") is not None)
                with in_terms_of(form, vars(trial).get("feature_names_in_")):
                    raise
            except KeyboardInterrupt as error:
                # an interactive shell keeps the last error, whose frames would keep futures alive on the cluster
                raise error.with_traceback(None) from None
        del vars(trial)[_BEFORE]
        found = [name for name, value in vars(trial).items() if name not in start or start[name] is not value]
        vars(trial)[FITTED_NAMES] = frozenset(found)
        self.__dict__ = vars(trial)
        return self

    return _fitted


def _refuse_arrays(model: Any) -> None:
    """Raise InvalidParameterError if a parameter that takes a text is an array."""
    usual = type(model)().get_params(deep=False)
    for name, value in model.get_params(deep=False).items():
        if isinstance(usual[name], str) and getattr(value, "ndim", 0) > 0:
            msg = f"{name} must be one value, such as {usual[name]!r}; received an array of shape {value.shape}"
            raise InvalidParameterError(msg)


def _own_methods(cls: type) -> Iterator[tuple[str, FunctionType]]:
    """Yield the methods that compute, of a class and of its mix-ins that are not models: public ones and a few more."""
    for made in cls.__mro__:
        if made is cls or (made.__module__.startswith("dask_dca.") and not issubclass(made, AnchorModel)):
            for name, member in vars(made).items():
                if isinstance(member, FunctionType) and (name[0] != "_" or name in _COMPUTING_METHODS):
                    yield name, member


def _validate(model: Any, X: Any, *, reset: bool) -> None:
    """Check number and names of features by scikit-learn's function, and add advice to its errors.

    Raises InvalidInputError: they differ from those of the fit.
    """
    try:
        validate_data(model, X, reset=reset, skip_check_array=True)
    except (TypeError, ValueError) as error:
        message = str(error).strip()
        if isinstance(error, TypeError):
            kinds = " and ".join(dict.fromkeys(type(name).__name__ for name in X.columns))
            message = f"the columns of X are called by {kinds}, and names are texts; pass X.rename(columns=str)"
        elif "names" in message and "now missing" not in message:
            message += f"\nSelect them in the same order: X[model.feature_names_in_]{or_groups(model, X.columns)}"
        raise InvalidInputError(message) from error


def _check_distinct(names: Any, X: Any) -> None:
    """Raise InvalidInputError if two columns have the same name."""
    found, counts = np.unique(np.asarray(names, dtype=str), return_counts=True)
    if (counts > 1).any():
        name = str(found[counts.argmax()])
        plain = {"AnnData": "X.X", "DataArray": "X.data", "Cube": "X.matrix"}.get(type(X).__name__, "X.to_numpy()")
        plain = "X.to_dask_array(lengths=True)" if hasattr(X, "to_dask_array") else plain
        msg = f"{int(counts.max())} columns of X are called {name!r}; rename them, or pass {plain}"
        raise InvalidInputError(msg)


class AnchorModel(KeywordAdvice, BaseEstimator):
    """Base of the models; not for direct use."""

    method: str = "robust"  # these are defaults for models without such parameters
    n_subproblems: int | str = "auto"
    ensemble: str = "auto"
    selection: str = "auto"
    missing: float | str | None = None
    random_state: Any
    retries: int
    checkpoint: str | None
    verbose: bool

    _fitted: ClassVar[dict[str, Attribute]] = COMMON  # declarations of the fitted attributes
    # attributes with the sizes of the dimensions of fitted arrays
    _sizes: ClassVar[dict[str, str]] = {
        "features": "n_features_in_",
        "parts": "n_components_",
        "next": "n_components_",
    }
    _count: ClassVar[str] = "n_components"  # parameter with the number of parts
    _mark: ClassVar[str] = "components_"  # attribute that a fitted model has
    _per_row: ClassVar[str] = "transform"  # method with a result per row, which `dask dca transform` writes
    _part: ClassVar[str] = "component"  # name of a part, as a dimension
    _feature: ClassVar[str] = "feature"  # name of a feature, as a dimension
    _own_directions: ClassVar[bool] = False  # whether `ensemble` is a parameter of the paper's method only
    _missing_note: ClassVar[str] = "Rows count by their observed entries."  # sentence on fits with missing entries
    # fitted attributes that `info` lists, without the underscore, in addition to those of the base classes
    _told: ClassVar[tuple[str, ...]] = ("n_components", "n_passes", "n_missing_entries")
    _has_views: ClassVar[bool] = False  # whether the paper's method uses three views of a row

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Run all methods that compute with NumPy's default handling of floating-point errors."""
        super().__init_subclass__(**kwargs)
        for name, method in _own_methods(cls):
            setattr(cls, name, numpy_defaults(method))

    def _take(self, given: dict[str, Any]) -> None:
        """Set the parameters of a constructor, its `locals()`, unchanged, as scikit-learn requires."""
        self.__dict__.update({name: value for name, value in given.items() if name not in ("self", "__class__")})

    def save(self, path: str, *, overwrite: bool = False) -> None:
        """
        Save the fitted model as a zarr group, which `load_model` reads; nothing in it is ever executed.

        Parameters
        ----------
        path : str
            Path or URL.
        overwrite : bool, default False
            Replace an existing model.

        Raises
        ------
        ModelFileError
            The path exists or can't be written.
        """
        from dask_dca.store import save_model

        check_is_fitted(self)
        save_model(self, path, overwrite=overwrite)

    def to_xarray(self, X: Any = None) -> Any:
        """
        Return all fitted arrays as an xarray.Dataset with named dimensions.

        Parameters
        ----------
        X : xarray.DataArray, optional
            The data of the fit, from which further coordinates are taken: those of the anchors' rows, and those along
            the features.

        Returns
        -------
        xarray.Dataset
            `components_` as the variable `components`, and so on. Dimensions have the names of those of the input, and
            "component", "state" or "topic". Names or coordinates of the features are a coordinate; single numbers are
            attributes. The state of `partial_fit` and `merge` is left out.

        Raises
        ------
        DCAError
            xarray is not installed, or X can't be the data of the fit: it is shorter, or its features are the anchors.
        """
        check_is_fitted(self)
        return as_dataset(self, X)

    def _facts(self) -> dict[str, Any]:
        """Results of the fit as plain values; subclasses add those that are no attribute."""
        names = (name for made in reversed(type(self).__mro__) for name in vars(made).get("_told", ()))
        found = {name: plain_fact(getattr(self, f"{name}_")) for name in names if hasattr(self, f"{name}_")}
        return {"n_components": None, "n_features": self.n_features_in_} | found

    def _describe(self) -> list[str]:
        """Results of the fit in lines of text; subclasses add theirs."""
        return [f"{type(self).__name__} of {self.n_features_in_} features"]

    def _repr_html_(self) -> str | None:
        """HTML for notebooks: scikit-learn's diagram before the fit, results after it."""
        return self._repr_mimebundle_().get("text/html")

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """HTML and text for IPython."""
        from dask_dca.reporting.page import notebook_html

        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        found = notebook_html(self) if "text/html" in bundle else None  # not with scikit-learn's display="text"
        bundle = bundle if found is None else bundle | {"text/html": found}
        return {kind: without_secrets(text) for kind, text in bundle.items()}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self._mark)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = "missing" in vars(self) and self.method == "robust"
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return without_secrets(super().__repr__(N_CHAR_MAX))

    @property
    def _form(self) -> str:
        """Form of the covariances; empty for models without."""
        return str(getattr(self, "covariance_type", ""))

    def _known_sizes(self) -> dict[str, int]:
        """Sizes of the dimensions of fitted arrays."""
        return {dim: getattr(self, name) for dim, name in self._sizes.items()}

    def _run(self, rows: Rows | None = None) -> Run:
        """Options for passes; with the rows of a fit, finished passes are kept in the checkpoint, if there is one."""
        run = Run(check_integer("retries", self.retries, 0), bool(self.verbose))
        if rows is None:
            return run
        run = replace(run, reads=Reads(rows.source))
        if self.checkpoint is None or rows.kind == "memory":
            return run
        return replace(run, checkpoint=fit_checkpoint(self, rows))

    def _check_parameters(self, rows: Any) -> None:
        """Check the parameters, given the numbers of rows and features, and the features' names."""
        self._anchoring()
        check_missing(self.missing)
        check_count(getattr(self, self._count), rows, self._count)

    def _anchoring(self) -> Settings:
        """Check the parameters of anchoring, and return them."""
        return check_settings(
            self.method,
            self.n_subproblems,
            self.ensemble,
            self.selection,
            self.random_state,
            own_directions=self._own_directions,
            views=self._has_views,
        )

    def _rows(self, X: Any, *, reset: bool) -> Rows:
        """Convert the input to rows; store its features (`reset`), or check them against those of the fit."""
        given = X if reset else cube_of(self, X)
        rows = as_rows(given)
        rows = replace(rows, form=self._form_of(X, rows.form))
        if rows.feature_names is not None:
            _check_distinct(rows.feature_names, X)
        if isinstance(X, np.ndarray) or type(X).__module__.partition(".")[0] in ("pandas", "scipy"):
            _validate(self, X, reset=reset)
        elif reset:
            self.n_features_in_ = rows.n_features
            if rows.feature_names is not None:
                self.feature_names_in_ = rows.feature_names
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        if reset:
            keep_features(self, rows)
        else:
            check_features(self, rows)
        if rows.labels is not None:
            labels = replace(rows.labels, parts=self._part, of_parts={} if reset else self._part_labels())
            rows = replace(rows, labels=labels)
        return mark_missing(rows, self.missing)

    def _form_of(self, X: Any, form: Form | None = None) -> Form:
        """Kind of the data X, for advice in error messages; form: that of its rows, if known."""
        given = cube_of(self, X)
        if isinstance(X, Cube) or not isinstance(given, Cube):
            return form or form_of(X)
        return replace(form_of(given), first=f"dask_dca.Cube(X, {given.labels.features}).matrix", labels=True)

    def _part_labels(self) -> dict[str, Any]:
        """Coordinates of the parts in results with named dimensions: the row numbers of the anchors."""
        return {"anchor": self.anchor_indices_} if hasattr(self, "anchor_indices_") else {}

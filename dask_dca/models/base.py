"""What all models share: parameters, checks of the input, a fit that changes a model only when it has ended."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Final, ParamSpec, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from dask_dca import __version__
from dask_dca.anchoring.parameters import check_count, check_integer, check_settings
from dask_dca.engine.advice import Form, form_of, in_terms_of
from dask_dca.engine.checkpoint import Checkpoint, open_checkpoint
from dask_dca.engine.cubes import Cube
from dask_dca.engine.files import expand_home
from dask_dca.engine.numerics import numpy_defaults, one_blas_thread
from dask_dca.engine.passes import Reads, Run
from dask_dca.engine.rows import Rows, as_rows, check_missing, mark_missing
from dask_dca.errors import InvalidInputError, InvalidParameterError, without_secrets
from dask_dca.models.attributes import COMMON
from dask_dca.models.foreign import AnswersKeywords
from dask_dca.models.labelled import as_dataset, check_features, cube_of, keep_features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dask_dca.anchoring.parameters import Settings
    from dask_dca.models.fitted import Attribute

_NO_MATTER: Final = ("checkpoint", "retries", "verbose")  # parameters that don't change the result
OF_FIT: Final = "_names_of_fit"  # attribute: names of what the last fit set
_BEFORE: Final = "_before_fit"  # attribute, during a fit: the model as it was
M = TypeVar("M")
P = ParamSpec("P")
_COMPUTE_TOO = ("_describe", "_facts", "_repr_mimebundle_")


def fit_checkpoint(model: Any, rows: Rows) -> Checkpoint:
    """Open the checkpoint of a fit.

    model: the model that is fitted. Returns keeps the passes over these rows.
    Raises InvalidParameterError: `checkpoint` is no path, or `random_state` is no integer, so that no two fits are the
    same; CheckpointError: the checkpoint belongs to another fit, or can't be used.
    """
    path, seed = model.checkpoint, model.random_state
    if not isinstance(path, str | os.PathLike):
        msg = f"checkpoint must be a path or URL; received {path!r}"
        raise InvalidParameterError(msg)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        msg = f"a checkpoint needs an integer random_state, since a resumed fit must draw the same; received {seed!r}"
        raise InvalidParameterError(msg)
    given = {name: _plain(value) for name, value in model.get_params(deep=False).items() if name not in _NO_MATTER}
    if given.get("warm_start"):
        given["init"] = _plain(model._start())
    facts = {"model": type(model).__name__, "version": __version__, "parameters": given}
    data = {"rows": rows.n_rows, "features": rows.n_features, "dtype": rows.dtype.str}  # and, once read, their content
    return open_checkpoint(expand_home(path), facts | {"data": data}, rows.source)


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict | AnchorModel):  # a start
        values = value if isinstance(value, dict) else {key: own for key, own in vars(value).items() if key[-1] == "_"}
        return {key: _plain(own) for key, own in values.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def whole_fit(fit: Callable[Concatenate[M, P], M]) -> Callable[Concatenate[M, P], M]:
    """Make a fit all or nothing.

    The fit works on a copy of the model that lacks what an earlier fit found. When it has ended, the model becomes the
    copy in one step; a fit that fails or is interrupted leaves the model as it was, and until then methods of the
    model, called in other threads, answer by the earlier fit. A cluster drops what an interrupted fit asked for.
    fit: a method `fit(self, ...)` that sets attributes of the model. Returns the method, which returns the model.
    """

    @functools.wraps(fit)
    def _fitted(self: M, /, *args: P.args, **kwargs: P.kwargs) -> M:
        earlier = {OF_FIT, *vars(self).get(OF_FIT, ())} - {*getattr(self, "_starting_names", ())}
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
                # a shell keeps the last error, its frames hold futures, and a cluster computes what is held
                raise error.with_traceback(None) from None
        del vars(trial)[_BEFORE]
        found = [name for name, value in vars(trial).items() if name not in start or start[name] is not value]
        vars(trial)[OF_FIT] = frozenset(found)
        self.__dict__ = vars(trial)
        return self

    return _fitted


def _refuse_arrays(model: Any) -> None:
    """Refuse several values for a parameter that is one of a few words, or "auto". Raises InvalidParameterError."""
    usual = type(model)().get_params(deep=False)
    for name, value in model.get_params(deep=False).items():
        if isinstance(usual[name], str) and getattr(value, "ndim", 0) > 0:
            msg = f"{name} must be one value, such as {usual[name]!r}; received an array of shape {value.shape}"
            raise InvalidParameterError(msg)


def _own_methods(cls: type) -> Iterator[tuple[str, FunctionType]]:
    """Public methods of a class, and of its mix-ins, which are no models."""
    for made in cls.__mro__:
        if made is cls or (made.__module__.startswith("dask_dca.") and not issubclass(made, AnchorModel)):
            for name, member in vars(made).items():
                if isinstance(member, FunctionType) and (name[0] != "_" or name in _COMPUTE_TOO):
                    yield name, member


def _validate(model: Any, X: Any, *, reset: bool) -> None:
    """Compare number and names of features as scikit-learn does; its errors are this library's, with a line that helps.

    Raises InvalidInputError: they are others.
    """
    try:
        validate_data(model, X, reset=reset, skip_check_array=True)
    except (TypeError, ValueError) as error:
        told = str(error).strip()
        if isinstance(error, TypeError):
            kinds = " and ".join(dict.fromkeys(type(name).__name__ for name in X.columns))
            told = f"the columns of X are called by {kinds}, and names are texts; pass X.rename(columns=str)"
        elif "names" in told and "now missing" not in told:
            told += "\nSelect them in the same order: X[model.feature_names_in_]"
        raise InvalidInputError(told) from error


def _check_distinct(names: Any, X: Any) -> None:
    """Refuse columns of one name. Raises InvalidInputError."""
    found, counts = np.unique(np.asarray(names, dtype=str), return_counts=True)
    if (counts > 1).any():
        name = str(found[counts.argmax()])
        plain = {"AnnData": "X.X", "DataArray": "X.data", "Cube": "X.matrix"}.get(type(X).__name__, "X.to_numpy()")
        plain = "X.to_dask_array(lengths=True)" if hasattr(X, "to_dask_array") else plain
        msg = f"{int(counts.max())} columns of X are called {name!r}; rename them, or pass {plain}"
        raise InvalidInputError(msg)


class AnchorModel(AnswersKeywords, BaseEstimator):
    """Base of the models; not for direct use."""

    method: str = "robust"  # of models that have no parameters for these
    n_subproblems: int | str = "auto"
    ensemble: str = "auto"
    selection: str = "auto"
    missing: float | str | None = None
    random_state: Any
    retries: int
    checkpoint: str | None
    verbose: bool

    _fitted: ClassVar[dict[str, Attribute]] = COMMON  # what the model holds once it is fitted
    # sizes of the dimensions of fitted arrays, as attributes
    _sizes: ClassVar[dict[str, str]] = {
        "features": "n_features_in_",
        "parts": "n_components_",
        "next": "n_components_",
    }
    _count: ClassVar[str] = "n_components"  # the parameter that says how many parts the model has
    _mark: ClassVar[str] = "components_"  # what a model has once it is fitted
    _per_row: ClassVar[str] = "transform"  # the method whose result, one row a row, is written by `dask dca transform`
    _part: ClassVar[str] = "component"  # what one of its parts is called, as a dimension
    _feature: ClassVar[str] = "feature"
    _own_directions: ClassVar[bool] = False  # whether only the paper's method draws from an ensemble
    _of_holes: ClassVar[str] = "Rows count by what was observed of them."  # what such a fit is
    _has_views: ClassVar[bool] = False  # whether the paper's method looks at three views of a row

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let all that a model computes run under NumPy's own rules for floating-point errors."""
        super().__init_subclass__(**kwargs)
        for name, method in _own_methods(cls):
            setattr(cls, name, numpy_defaults(method))

    def _take(self, given: dict[str, Any]) -> None:
        """Take the parameters of a constructor as they are, which scikit-learn asks for: its `locals()`."""
        self.__dict__.update({name: value for name, value in given.items() if name not in ("self", "__class__")})

    def save(self, path: str, *, overwrite: bool = False) -> None:
        """
        Save the fitted model as a zarr group, which `load_model` reads; nothing in it is ever executed.

        Parameters
        ----------
        path : str
            Path or URL.
        overwrite : bool, default False
            Replace a model that is there.

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
        Return all fitted arrays with named dimensions.

        Parameters
        ----------
        X : xarray.DataArray, optional
            The data of the fit: the coordinates of the anchors' rows are taken from it.

        Returns
        -------
        xarray.Dataset
            `components_` as the variable `components`, and so on; dimensions are called as those of the input, and
            "component", "state" or "topic". Names or coordinates of the features are a coordinate; single
            numbers are attributes. What only `partial_fit` and `merge` go on from is left out.

        Raises
        ------
        DCAError
            xarray is not installed, or X can't be the data of the fit: it is shorter, or its features are the anchors.
        """
        check_is_fitted(self)
        return as_dataset(self, X)

    def _facts(self) -> dict[str, Any]:
        """What the model found, as plain values; subclasses add theirs."""
        return {
            "n_components": getattr(self, "n_components_", None),
            "n_features": self.n_features_in_,
            "n_passes": self.n_passes_,
        } | {name[:-1]: value for name, value in vars(self).items() if name == "n_missing_entries_"}

    def _describe(self) -> list[str]:
        """What the model found, in lines of text; subclasses say more."""
        return [f"{type(self).__name__} of {self.n_features_in_} features"]

    def _repr_html_(self) -> str | None:
        """What notebooks show of the model: scikit-learn's diagram before the fit, what was found after it."""
        found: str | None = self._repr_mimebundle_().get("text/html")
        return found

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """The same beside the text, as IPython asks for it."""
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
        """Form of the covariances, where a model has any."""
        return str(getattr(self, "covariance_type", ""))

    def _known_sizes(self) -> dict[str, int]:
        """Sizes of the dimensions of fitted arrays."""
        return {dim: getattr(self, name) for dim, name in self._sizes.items()}

    def _run(self, rows: Rows | None = None) -> Run:
        """How passes are run; with the rows of a fit, finished ones are kept in the checkpoint, if there is one."""
        run = Run(check_integer("retries", self.retries, 0), bool(self.verbose))
        if rows is None:
            return run
        run = replace(run, reads=Reads(rows.source))
        if self.checkpoint is None or rows.kind == "memory":
            return run
        return replace(run, checkpoint=fit_checkpoint(self, rows))

    def _check_parameters(self, rows: Any) -> None:
        """Refuse parameters that no fit could use, given the numbers of rows and features, and the features' names."""
        self._anchoring()
        check_missing(self.missing)
        check_count(getattr(self, self._count), rows, self._count)

    def _anchoring(self) -> Settings:
        """Checked parameters of anchoring."""
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
        """Take the input as rows, and check its features against those of fit (or keep them)."""
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
        """What kind of data X is, for lines that mend it; form: what its rows say of that."""
        given = cube_of(self, X)
        if isinstance(X, Cube) or not isinstance(given, Cube):
            return form or form_of(X)
        return replace(form_of(given), first=f"dask_dca.Cube(X, {given.labels.features}).matrix")

    def _part_labels(self) -> dict[str, Any]:
        """What is said of each part in results with named dimensions: the row that is its anchor."""
        return {"anchor": self.anchor_indices_} if hasattr(self, "anchor_indices_") else {}

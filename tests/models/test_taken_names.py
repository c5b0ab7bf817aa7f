"""Names that data have and the library gives too: its own give way, and nothing is lost."""

import copy

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dask_dca as dca
from dask_dca.models.fitted import dims_of
from tests.models.test_xarray import FAMILIES, frames


@pytest.fixture(scope="module")
def fitted():
    """Models of labelled data, each fitted once."""
    made = {family: copy.deepcopy(model).fit(data()) for family, (model, data, _) in FAMILIES.items()}
    symbols = np.tile([0.0, 2.0, 1.0, 1.0], 20)[:, None]
    made["CategoricalHMM"] = dca.CategoricalHMM(2, max_iter=1).fit(xr.DataArray(symbols, dims=("t", "symbol")))
    return made


def own_names(model):
    """All that the library calls something in the model's Dataset."""
    arrays = {
        key: value for key, value in vars(model).items() if isinstance(value, np.ndarray) and key in model._fitted
    }
    dims = {dim for key, value in arrays.items() for dim in dims_of(model._fitted[key], model._form, value.ndim) or ()}
    part = model._part
    names = {key[:-1] for key in arrays} | dims | {part, f"next_{part}", f"other_{part}", "anchor", "anchor_word"}
    return sorted(names | {f"other_{name}" for name in (part, "bound")})


@pytest.mark.parametrize("family", [*FAMILIES, "CategoricalHMM"])
@pytest.mark.parametrize("named", [False, True], ids=["dimension", "coordinate"])
def test_features_may_be_called_as_anything_in_the_dataset(fitted, family, named):
    whole = fitted[family].to_xarray()
    for name in own_names(fitted[family]):
        model = copy.copy(fitted[family])
        vars(model).pop("feature_values_in_", None)
        vars(model).pop("feature_names_in_", None)
        model.feature_dim_in_ = name
        if named:
            model.feature_names_in_ = np.array([f"w{j}" for j in range(model.n_features_in_)], dtype=object)
        found = model.to_xarray()
        own = f"other_{name}" if name == model._part else name
        assert found.sizes.get(own, 1) == model.n_features_in_, name
        assert not named or found[own].values.tolist() == model.feature_names_in_.tolist()
        for variable in whole.data_vars:
            held = next(f"{'other_' * i}{variable}" for i in range(3) if f"{'other_' * i}{variable}" in found.data_vars)
            np.testing.assert_array_equal(found[held].values, whole[variable].values)
            assert held == variable or variable == name
        assert len(found.data_vars) == len(whole.data_vars)


@pytest.mark.parametrize("name", ["bound", "component", "other_component", "candidate", "votes", "anchor_time"])
def test_features_along_several_dimensions_may_be_called_so_too(name):
    X = np.abs(np.random.default_rng(0).standard_normal((40, 3, 2)))
    movie = xr.DataArray(X, dims=("time", name, "y"), coords={name: [5, 6, 7], "time": np.arange(40) * 2})
    model = dca.NMF(2).fit(dca.Cube(movie, (name, "y")))
    found = model.to_xarray(movie)
    own = "other_component" if name == "component" else name
    assert found.components.dims == ("component", own, "y")
    assert found[own].values.tolist() == [5, 6, 7]
    rows = [name for name in found.coords if "anchor_time" in str(name) and found[name].dims == ("component",)]
    np.testing.assert_array_equal(found[rows[0]], movie.time[model.anchor_indices_])


@pytest.mark.parametrize("name", ["indices", "bound", "words", "state"])
def test_rows_may_be_called_so_too(name):
    X = frames().rename(time=name)
    model = dca.GaussianHMM(2, max_iter=1).fit(X)
    found = model.to_xarray(X)
    np.testing.assert_array_equal(found[f"anchor_{name}"], X[name][model.anchor_indices_])
    held = "other_anchor_indices" if name == "indices" else "anchor_indices"
    np.testing.assert_array_equal(found[held], model.anchor_indices_)
    assert model.predict_proba(X).dims == (name, "other_state" if name == "state" else "state")


@pytest.mark.parametrize("name", ["component", "other_component"])
def test_coefficients_of_rows_of_the_same_name_go_back(name):
    X = np.abs(np.random.default_rng(0).standard_normal((6, 10, 4)))
    cube = xr.DataArray(X, dims=(name, "y", "band"))
    model = dca.NMF(2).fit(dca.Cube(cube, "band"))
    back = model.inverse_transform(model.transform(cube))
    assert back.dims == cube.dims
    flat = dca.NMF(2).fit(X.reshape(-1, 4))
    wanted = flat.inverse_transform(flat.transform(X.reshape(-1, 4)))
    np.testing.assert_array_equal(back.values.reshape(-1, 4), wanted)


MAPS = np.abs(np.random.default_rng(0).standard_normal((6, 10, 4))) + 0.1


def maps(**more):
    return xr.Dataset({name: (more.get("dims", ("y", "x")), MAPS[..., j]) for j, name in enumerate("abcd")})


def test_a_dataset_may_have_a_dimension_called_variable():
    found = maps(dims=("y", "variable"))
    cube = dca.Cube(found)
    assert cube.labels.rows == ("y", "variable")
    model = dca.NMF(2).fit(cube)
    assert model.feature_dim_in_ == "other_variable"
    assert model.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(model.components_, dca.NMF(2).fit(MAPS.reshape(-1, 4)).components_)
    assert model.transform(found).dims == ("y", "variable", "component")
    assert model.to_xarray(found).components.dims == ("component", "other_variable")


def test_a_coordinate_called_variable_stays():
    found = maps().assign_coords(variable=("y", np.arange(6)))
    shares = dca.NMF(2).fit(dca.Cube(found)).transform(found)
    np.testing.assert_array_equal(shares["variable"], np.arange(6))


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"t": (("y", "x"), np.full((6, 10), np.datetime64("2024-01-01", "ns")))}, ["t"]),
        ({"t": (("y", "x"), np.full((6, 10), np.timedelta64(1, "s")))}, ["t"]),
        ({"t": (("y", "x"), np.full((6, 10), "wet")), "u": (("y", "x"), np.full((6, 10), "dry"))}, ["t", "u"]),
        ({"spatial_ref": ((), 0), "bounds": (("y", "side"), np.zeros((6, 2)))}, ["spatial_ref", "bounds"]),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_variables_that_are_no_features_are_named_and_left_out(more, names, first):
    rest = xr.Dataset(more)
    found = xr.merge([rest, maps()] if first else [maps(), rest])
    with pytest.raises(dca.errors.DCAError) as raised:
        dca.Cube(found)
    advice = f"X.drop_vars({names})"
    assert advice in str(raised.value), str(raised.value)
    model = dca.NMF(2).fit(dca.Cube(eval(advice, {"X": found})))
    assert model.feature_names_in_.tolist() == list("abcd")


@pytest.mark.parametrize("lazy", [False, True], ids=["memory", "chunks"])
@pytest.mark.parametrize("topics", [False, True], ids=["nmf", "topics"])
def test_set_output_gives_a_table_of_a_cube_with_a_level_for_each_dimension(lazy, topics):
    image = xr.DataArray(np.rint(9 * MAPS), dims=("y", "x", "band"), coords={"y": np.arange(6) * 10})
    image = image.chunk({"y": 2}) if lazy else image
    model = dca.LatentDirichletAllocation(2, min_df=1, max_iter=1) if topics else dca.NMF(2)
    plain = copy.deepcopy(model).fit(dca.Cube(image, "band")).transform(image)
    table = model.set_output(transform="pandas").fit_transform(dca.Cube(image, "band"))
    pd.testing.assert_frame_equal(table, model.transform(image))
    assert table.index.names == ["y", "x"]
    assert table.columns.tolist() == model.get_feature_names_out().tolist()
    part = "topic" if topics else "component"
    assert table.loc[(30, 7), f"{part}_1"] == float(plain.sel(y=30).isel({"x": 7, part: 1}))
    stacked = image.stack(pixel=("y", "x")).transpose("pixel", "band")
    assert model.fit_transform(stacked).index.equals(stacked.indexes["pixel"])


def test_set_output_keeps_the_index_of_a_dask_table():
    import dask.dataframe as dd

    table = pd.DataFrame(MAPS.reshape(-1, 4), columns=list("abcd"), index=[f"row{i:02d}" for i in range(60)])
    found = dca.NMF(2).set_output(transform="pandas").fit_transform(dd.from_pandas(table, npartitions=3, sort=False))
    assert found.index.tolist() == table.index.tolist()

"""Cubes of xarray as they are: images, movies, several variables; results are maps again."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import dask_dca as dca
from dask_dca.errors import DCAError
from tests.conftest import bits, planted, raise_if_dask_computes

SIZES = (12, 15)
BANDS = np.linspace(0.4, 2.5, 8).round(2)
PIXELS, ANCHORS = planted(SIZES[0] * SIZES[1], len(BANDS), 3, seed=2)


def image(chunks=None):
    """An image as satellites send it: band, y, x; with a latitude for each pixel."""
    cube = np.moveaxis(PIXELS.reshape(*SIZES, -1), -1, 0)
    coords = {"y": 1000.0 - 10.0 * np.arange(SIZES[0]), "x": 10.0 * np.arange(SIZES[1]), "band": BANDS, "scene": "A"}
    coords["lat"] = (("y", "x"), np.arange(180.0).reshape(SIZES))
    found = xr.DataArray(cube, dims=("band", "y", "x"), coords=coords)
    return found if chunks is None else found.chunk(chunks)


@pytest.mark.parametrize("chunks", [None, {"band": 3, "y": 5, "x": 4}, {"band": -1, "y": 1}])
def test_a_cube_gives_the_model_of_its_pixels_and_maps(chunks):
    cube = image(chunks)
    model = dca.NMF(3).fit(dca.Cube(cube, features="band"))
    assert bits(model) == bits(dca.NMF(3).fit(PIXELS))
    with raise_if_dask_computes():
        maps = model.transform(cube)
    assert maps.dims == ("y", "x", "component")
    assert isinstance(maps.data, da.Array) is (chunks is not None)
    np.testing.assert_array_equal(maps.values.reshape(-1, 3), dca.NMF(3).fit(PIXELS).transform(PIXELS))
    for name in ("y", "x", "lat", "scene"):
        assert maps[name].equals(cube[name])
    back = model.inverse_transform(maps)
    assert back.dims == ("y", "x", "band")
    xr.testing.assert_allclose(back.transpose(*cube.dims), cube)
    assert model.transform(dca.Cube(cube, "band")).equals(maps)


def test_a_fitted_model_takes_cubes_in_any_order_of_dimensions_and_of_more():
    cube = image()
    model = dca.NMF(3).fit(dca.Cube(cube, "band"))
    turned = model.transform(cube.transpose("x", "band", "y"))
    assert turned.dims == ("x", "y", "component")
    xr.testing.assert_equal(turned.transpose("y", "x", "component"), model.transform(cube))
    twice = xr.concat([cube, cube], dim="time")
    assert model.transform(twice).dims == ("time", "y", "x", "component")


def test_the_dataset_says_where_anchors_are():
    cube = image().assign_coords(usable=("band", np.arange(len(BANDS)) > 1))
    found = dca.NMF(3).fit(dca.Cube(cube, "band")).to_xarray(cube)
    xr.testing.assert_equal(found.usable, cube.usable.drop_vars("scene"))
    assert sorted(found.anchor_lat.values) == ANCHORS.tolist()
    for j in range(3):
        there = {"y": found.anchor_y.values[j], "x": found.anchor_x.values[j]}
        np.testing.assert_array_equal(cube.sel(there).values, found.components[j].values)


def movie():
    """A thing that comes and goes at each of two places, with a hole."""
    rng = np.random.default_rng(0)
    amounts = np.vstack([np.eye(2), rng.random((38, 2))])
    X = (amounts @ rng.random((2, 30))).reshape(40, 5, 6)
    return xr.DataArray(X, dims=("time", "lat", "lon"), coords={"lat": np.arange(5) * 10.0, "time": np.arange(40)})


@pytest.mark.parametrize("chunks", [None, {"time": 9, "lat": 2}])
def test_times_are_rows_and_components_maps(chunks):
    X = movie() if chunks is None else movie().chunk(chunks)
    model = dca.NMF(2).fit(dca.Cube(X, features=("lat", "lon")))
    assert bits(model) == bits(dca.NMF(2).fit(movie().values.reshape(40, 30)))
    assert model.transform(X).dims == ("time", "component")
    found = model.to_xarray(X)
    assert found.components.dims == ("component", "lat", "lon")
    np.testing.assert_array_equal(found.components.lat, X.lat)
    np.testing.assert_array_equal(found.components.values.reshape(2, 30), model.components_)
    filled = model.impute(X.where(X.time != 7))
    assert filled.dims == ("time", "lat", "lon")
    np.testing.assert_array_equal(filled.lat, X.lat)


def test_variables_of_a_dataset_are_features():
    rng = np.random.default_rng(0)
    data = xr.Dataset(
        {name: (("y", "x"), rng.normal(size=(9, 7))) for name in ("heat", "rain", "wind")}, {"x": np.arange(7) * 5}
    )
    for given in (data, data.chunk({"y": 4})):
        model = dca.GaussianMixture(2, "diag").fit(dca.Cube(given))
        assert model.feature_names_in_.tolist() == ["heat", "rain", "wind"]
        labels = model.predict(given)
        assert labels.dims == ("y", "x")
        np.testing.assert_array_equal(labels.x, data.x)
        table = data.to_dataarray("variable").transpose("y", "x", "variable").values.reshape(-1, 3)
        np.testing.assert_array_equal(labels.values.ravel(), model.set_params().predict(xr.DataArray(table).values))
    with pytest.raises(DCAError, match="feature 0 is 'rain' and was 'heat'"):
        model.predict(data[["rain", "heat", "wind"]])


test_variables_of_a_dataset_are_features = pytest.mark.filterwarnings("ignore:X does not have valid feature names")(
    test_variables_of_a_dataset_are_features
)


def test_time_is_the_last_dimension_of_the_rows_of_a_chain():
    X = np.random.default_rng(0).normal(size=(4, 50, 2)) + np.repeat([[[0.0]], [[6.0]]], 2, axis=0)
    cube = xr.DataArray(X, dims=("run", "time", "channel"))
    model = dca.GaussianHMM(2, max_iter=1).fit(dca.Cube(cube, "channel"))
    assert model.n_sequences_ == 4
    np.testing.assert_array_equal(model.means_, dca.GaussianHMM(2, max_iter=1).fit(X).means_)
    assert model.predict(cube).dims == ("run", "time")
    means, covariances = dca.KalmanFilter(1, max_iter=0).fit(dca.Cube(cube, "channel")).filter(cube)
    assert means.dims == ("run", "time", "state")
    assert covariances.dims == ("run", "time", "state", "other_state")


@pytest.mark.parametrize("function", [lambda X: dca.in_cone(X, PIXELS[:2]), lambda X: dca.find_anchors(X, 3).indices])
def test_functions_take_cubes(function):
    found = function(dca.Cube(image(), "band"))
    np.testing.assert_array_equal(np.asarray(found).ravel(), function(PIXELS))


def test_saved_models_take_cubes(tmp_path):
    model = dca.NMF(3).fit(dca.Cube(image(), "band"))
    model.save(str(tmp_path / "model.zarr"))
    again = dca.load_model(str(tmp_path / "model.zarr"))
    xr.testing.assert_identical(again.transform(image()), model.transform(image()))


@pytest.mark.parametrize("chunks", [None, {"y": 5}])
def test_reports_take_cubes(chunks):
    model = dca.NMF(3).fit(dca.Cube(image(), "band"))
    assert "180 rows" in dca.report(model, data=image(chunks))
    assert "180 rows" in dca.report(model, data=dca.Cube(image(chunks), "band"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dca.Cube(image(), 0), "features=0 is no dimension of X"),
        (
            lambda: dca.NMF(2).fit(dca.Cube(movie(), ("lat", "lon"))).transform(dca.Cube(movie(), ("lon", "lat"))),
            "along lat,lon, in this order; pass X itself",
        ),
        (lambda: dca.NMF(3).fit(image()), r"pass dask_dca\.Cube\(X, features='band'\)"),
        (lambda: dca.Cube(image(), "bands"), r"features='bands' is no dimension of X, which has \('band', 'y', 'x'\)"),
        (lambda: dca.Cube(image()), "features='variable' is no dimension"),
        (lambda: dca.Cube(image(), ()), r"features=\(\) is no dimension"),
        (lambda: dca.Cube(image(), ("band", "y", "x")), "leave one for the rows"),
        (lambda: dca.Cube(PIXELS, "band"), r"received a ndarray of two dimensions; models take it as it is"),
        (lambda: dca.Cube(image().values, "band"), r"received a ndarray; reshape arrays: X\.reshape\(-1, 15\)"),
        (lambda: dca.Cube(xr.Dataset()), "a Dataset without variables"),
        (
            lambda: dca.Cube(xr.Dataset({"a": (("y", "x"), np.ones((2, 3))), "b": ("y", np.ones(2))})),
            r"'a' has \('y', 'x'\), 'b' \('y',\); leave out what differs: X\.drop_vars\(\['b'\]\)",
        ),
        (lambda: dca.NMF(3).fit(dca.Cube(image(), "band")).transform(image()[:5]), "X has 5 features"),
        (
            lambda: dca.NMF(3).fit(dca.Cube(image(), "band")).transform(image()[::-1]),
            "along 'band' are not those of the fit",
        ),
    ],
)
def test_what_is_no_cube_is_told(make, message):
    with pytest.raises(DCAError, match=message):
        make()

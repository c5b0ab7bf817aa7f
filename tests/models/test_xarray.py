"""Named dimensions in and out: results of an xarray.DataArray are DataArrays, with the rows' names and coordinates."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.base import clone

import dask_dca as dca
from dask_dca.errors import DCAError
from tests.conftest import planted, raise_if_dask_computes

SIZE = (12, 15)  # of the image
BANDS = np.linspace(0.4, 2.5, 10).round(2)


def image(chunked=False, dtype=np.float64):
    """An image of three pure materials and their mixtures, as people keep one: y, x, band."""
    X, anchors = planted(SIZE[0] * SIZE[1], len(BANDS), 3, seed=2, dtype=dtype)
    coords = {"y": 1000.0 - 10.0 * np.arange(SIZE[0]), "x": 10.0 * np.arange(SIZE[1]), "band": BANDS, "scene": "A"}
    cube = xr.DataArray(X.reshape(*SIZE, -1), dims=("y", "x", "band"), coords=coords, attrs={"units": "1"})
    return (cube.chunk({"y": 5, "x": -1, "band": 4}) if chunked else cube), anchors


def pixels_of(cube):
    return cube.stack(pixel=("y", "x")).transpose("pixel", "band")


def frames(n=120):
    """Two states in turn, with dates, an hour, and words for channels."""
    rng = np.random.default_rng(0)
    states = np.repeat([0, 1, 0, 1], n // 4)
    X = np.array([[0.0, 4.0, 1.0], [5.0, 0.0, 2.0]])[states] + rng.standard_normal((n, 3))
    time = pd.date_range("2024-01-01", periods=n, freq="h")
    coords = {"time": time, "channel": ["flow", "level", "heat"], "hour": ("time", time.hour)}
    return xr.DataArray(X, dims=("time", "channel"), coords=coords)


def counts(n=80):
    rng = np.random.default_rng(1)
    topics = np.kron(np.eye(2), np.full(6, 1 / 6))
    X = np.array([rng.multinomial(50, h @ topics) for h in rng.dirichlet([0.3] * 2, n)])
    words = [f"word{j}" for j in range(12)]
    return xr.DataArray(X, dims=("document", "word"), coords={"document": np.arange(n) + 100, "word": words})


def rays(n=90):
    rng = np.random.default_rng(0)
    cones = [rng.random((n // 2, 2)) @ rng.standard_normal((2, 8)) for _ in range(2)]
    return xr.DataArray(np.vstack(cones), dims=("sample", "gene"), coords={"sample": np.arange(n) * 2})


# model, data, and of each method the dimensions that its results have beside the rows
FAMILIES = {
    "NMF": (dca.NMF(3), lambda: pixels_of(image()[0]), {"transform": ["component"]}),
    "GaussianMixture": (
        dca.GaussianMixture(2),
        frames,
        {"predict": [], "predict_proba": ["component"], "score_samples": [], "fit_predict": []},
    ),
    "GaussianHMM": (
        dca.GaussianHMM(2),
        frames,
        {"predict": [], "predict_proba": ["state"], "score_samples": [None, ["state"]], "decode": [None, []]},
    ),
    "KalmanFilter": (
        dca.KalmanFilter(2, max_iter=1),
        frames,
        {"filter": [["state"], ["state", "other_state"]], "smooth": [["state"], ["state", "other_state"]],
         "predict": ["channel"]},
    ),
    "LatentDirichletAllocation": (dca.LatentDirichletAllocation(2, max_iter=1), counts, {"transform": ["topic"]}),
    "SubspaceClustering": (dca.SubspaceClustering(2, n_components=4), rays, {"predict": [], "fit_predict": []}),
}  # fmt: skip
METHODS = [(family, method) for family, (_, _, methods) in FAMILIES.items() for method in methods]


def chunked(X):
    return X.chunk({X.dims[0]: 40, X.dims[1]: -1})


@pytest.fixture(scope="module")
def fitted():
    """Models of labelled data, each fitted once."""
    made = {}

    def get(family):
        if family not in made:
            model, data, _ = FAMILIES[family]
            made[family] = model.fit(data())
        return made[family]

    return get


def pairs(found, dims):
    """Results and the dimensions that they should have, of methods that return one or two."""
    return zip(found, dims, strict=True) if isinstance(found, tuple) else [(found, dims)]


@pytest.mark.parametrize(("family", "method"), METHODS, ids=lambda value: value)
@pytest.mark.parametrize("lazy", [False, True], ids=["memory", "chunks"])
def test_results_keep_the_dimension_and_coordinates_of_the_rows(fitted, family, method, lazy):
    _, data, methods = FAMILIES[family]
    X, model = data(), fitted(family)
    plain = getattr(model, method)(da.from_array(X.values, chunks=(40, -1)) if lazy else X.values[:])
    given = chunked(X) if lazy else X
    computes = method.startswith("fit") or family == "GaussianHMM"
    with raise_if_dask_computes(10**6 if computes else 0):
        found = getattr(model, method)(given)
    for (labelled, dims), (bare, _) in zip(pairs(found, methods[method]), pairs(plain, methods[method]), strict=True):
        if dims is None:
            assert labelled == bare
            continue
        assert isinstance(labelled, xr.DataArray)
        assert isinstance(labelled.data, da.Array) is lazy
        assert labelled.dims == (X.dims[0], *dims)
        assert (labelled.name, labelled.attrs) == (None, {})
        for name, coordinate in X.coords.items():
            if X.dims[1] not in coordinate.dims:
                assert labelled.coords[name].equals(coordinate), name
        np.testing.assert_array_equal(labelled.values, np.asarray(bare))


test_results_keep_the_dimension_and_coordinates_of_the_rows = pytest.mark.filterwarnings(
    "ignore:X does not have valid feature names"
)(test_results_keep_the_dimension_and_coordinates_of_the_rows)


LEFT_OUT = ("_", "feature_", "first_", "later_", "stream_")  # the last three: what partial_fit goes on from


@pytest.mark.parametrize("family", FAMILIES)
def test_all_fitted_arrays_are_in_the_dataset(fitted, family):
    """Under names of dimensions that fit their sizes; xarray itself refuses dimensions of two sizes."""
    model, X = fitted(family), FAMILIES[family][1]()
    found = model.to_xarray()
    arrays = {key[:-1]: value for key, value in vars(model).items() if isinstance(value, np.ndarray) and value.ndim}
    arrays = {key: value for key, value in arrays.items() if not key.startswith(LEFT_OUT)}
    assert set(found.data_vars) == set(arrays)
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name].values, value)
        assert found[name].dtype == value.dtype
    assert found.attrs["model"] == family
    assert found.sizes[X.dims[1]] == X.shape[1]
    if X.dims[1] in X.coords:
        assert found[X.dims[1]].equals(X[X.dims[1]].drop_vars("scene", errors="ignore"))


@pytest.mark.parametrize("family", [name for name in FAMILIES if hasattr(FAMILIES[name][0], "partial_fit")])
def test_what_a_stream_goes_on_from_is_saved_and_not_in_the_dataset(family, tmp_path):
    X = FAMILIES[family][1]()
    model = clone(FAMILIES[family][0]).fit(X).partial_fit(X)
    own = {key for key in vars(model) if key.startswith(("first_", "later_", "stream_"))}
    assert own
    found = model.to_xarray()
    assert not [name for name in (*found.data_vars, *found.attrs) if f"{name}_" in own]
    model.save(str(tmp_path / "model.zarr"))
    assert own <= vars(dca.load_model(str(tmp_path / "model.zarr"))).keys()


@pytest.mark.parametrize("covariance_type", ["diag", "full", "tied", "spherical", "tied-spherical"])
def test_covariances_of_every_form_have_dimensions(covariance_type):
    found = dca.GaussianMixture(2, covariance_type).fit(frames()).to_xarray()
    forms = {
        "diag": ("component", "channel"),
        "full": ("component", "channel", "other_channel"),
        "tied": ("channel", "other_channel"),
        "spherical": ("component",),
    }
    if covariance_type == "tied-spherical":
        assert found.attrs["covariances"] > 0
    else:
        assert found.covariances.dims == forms[covariance_type]


def test_the_dataset_of_the_paper_s_methods_has_all_arrays_too():
    for model, X in [
        (dca.NMF(3, method="paper"), pixels_of(image()[0])),
        (dca.GaussianHMM(2, method="paper"), frames()),
        (dca.SubspaceClustering(2, n_components=4, method="paper"), rays()),
        (dca.KalmanFilter(2, method="paper"), frames()),
    ]:
        model.fit(X)
        arrays = [key for key, value in vars(model).items() if isinstance(value, np.ndarray) and value.ndim]
        assert {f"{name}_" for name in model.to_xarray().data_vars} >= {
            key for key in arrays if not key.startswith(LEFT_OUT)
        }


@pytest.mark.parametrize("lazy", [False, True], ids=["memory", "chunks"])
def test_an_image_goes_in_and_images_come_out(lazy):
    cube, anchors = image(lazy)
    pixels = pixels_of(cube)
    model = dca.NMF(3).fit(pixels)
    assert sorted(model.anchor_indices_) == anchors.tolist()
    shares = model.transform(pixels).unstack("pixel")
    assert isinstance(shares.data, da.Array) is lazy
    assert shares.dims == ("component", "y", "x")
    np.testing.assert_array_equal(shares.y, cube.y)
    np.testing.assert_array_equal(shares.x, cube.x)
    whole = dca.NMF(3).fit(pixels.values).transform(pixels.values)
    np.testing.assert_array_equal(shares.transpose("y", "x", "component").values.reshape(-1, 3), whole)

    found = model.to_xarray(pixels)
    assert found.components.dims == ("component", "band")
    for j in range(3):
        there = {"y": found.anchor_y.values[j], "x": found.anchor_x.values[j]}
        np.testing.assert_array_equal(cube.sel(there).values, found.components[j].values)
        assert float(shares.isel(component=j).sel(there)) == pytest.approx(1.0)


@pytest.mark.parametrize("lazy", [False, True], ids=["memory", "chunks"])
def test_what_is_transformed_goes_back_to_the_bands(lazy):
    pixels = pixels_of(image(lazy)[0])
    model = dca.NMF(3).fit(pixels)
    back = model.inverse_transform(model.transform(pixels))
    assert back.dims == pixels.dims
    assert isinstance(back.data, da.Array) is lazy
    assert back.indexes["pixel"].equals(pixels.indexes["pixel"])
    np.testing.assert_array_equal(back.band, BANDS)
    assert "anchor" not in back.coords
    xr.testing.assert_allclose(back, pixels)


def test_the_row_of_each_anchor_is_said_beside_the_result():
    pixels = pixels_of(image()[0])
    model = dca.NMF(3).fit(pixels)
    np.testing.assert_array_equal(model.transform(pixels).anchor, model.anchor_indices_)
    topics = dca.LatentDirichletAllocation(2, max_iter=0).fit(counts())
    assert topics.transform(counts()).anchor_word.values.tolist() == topics.get_anchor_words().tolist()
    assert topics.to_xarray().anchor_word.values.tolist() == topics.get_anchor_words().tolist()


def test_transposed_data_are_refused_with_the_way_out():
    pixels = pixels_of(image()[0])
    model = dca.NMF(3).fit(pixels)
    with pytest.raises(DCAError, match=r"'pixel' is a stack of dimensions.*pass X.transpose\('pixel', 'band'\)"):
        dca.NMF(3).fit(pixels.T)
    plain = pixels.drop_vars(["pixel", "y", "x"])
    with pytest.raises(DCAError, match=r"features of the fit are along 'band'.*X.transpose\('pixel', 'band'\)"):
        model.transform(plain.T)
    model.transform(plain)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (image()[0], r"dims \('y', 'x', 'band'\).*pass dask_dca\.Cube\(X, features='band'\)"),
        (image()[0][0, 0], r"dims \('band',\).*expand_dims"),
        (image()[0].to_dataset(name="reflectance"), r"Dataset of 'reflectance'.*X\['reflectance'\]"),
    ],
)
def test_other_shapes_are_refused_with_the_way_out(X, message):
    with pytest.raises(DCAError, match=message):
        dca.NMF(3).fit(X)


def test_other_features_are_refused():
    cube = image()[0]
    model = dca.NMF(3).fit(pixels_of(cube))
    np.testing.assert_array_equal(model.feature_values_in_, BANDS)
    with pytest.raises(DCAError, match=r"along 'band' are not those of the fit"):
        model.transform(pixels_of(cube.assign_coords(band=BANDS[::-1])))
    model.transform(pixels_of(cube.assign_coords(band=BANDS.astype(np.float32))))
    with pytest.raises(DCAError, match="X has 9 features"):
        model.transform(pixels_of(cube[..., :9]))

    X = frames()
    mixture = dca.GaussianMixture(2).fit(X)
    assert mixture.feature_names_in_.tolist() == ["flow", "level", "heat"]
    with pytest.raises(DCAError, match="feature 0 is 'heat' and was 'flow'"):
        mixture.predict(X[:, ::-1])


def test_frames_of_dask_with_other_columns_are_refused():
    table = frames().to_pandas()
    mixture = dca.GaussianMixture(2).fit(dd.from_pandas(table, npartitions=3))
    assert mixture.feature_names_in_.tolist() == ["flow", "level", "heat"]
    assert isinstance(mixture.predict(table), np.ndarray)
    with pytest.raises(DCAError, match="feature 0 is 'heat' and was 'flow'"):
        mixture.predict(dd.from_pandas(table.iloc[:, ::-1], npartitions=3))
    found = mixture.to_xarray().means
    assert found.dims == ("component", "feature")
    assert found.feature.values.tolist() == ["flow", "level", "heat"]


def test_nothing_of_an_earlier_fit_is_left():
    model = dca.NMF(3).fit(pixels_of(image()[0]))
    model.fit(pixels_of(image()[0]).values)
    assert not hasattr(model, "feature_dim_in_")
    assert not hasattr(model, "feature_values_in_")
    assert model.to_xarray().components.dims == ("component", "feature")


def test_saved_models_know_their_dimensions(tmp_path):
    pixels = pixels_of(image()[0])
    model = dca.NMF(3).fit(pixels)
    model.save(str(tmp_path / "model.zarr"))
    again = dca.load_model(str(tmp_path / "model.zarr"))
    xr.testing.assert_identical(again.to_xarray(), model.to_xarray())
    xr.testing.assert_identical(again.transform(pixels), model.transform(pixels))


def test_names_that_are_taken_give_way():
    """A coordinate along the rows may be called as the library calls its own dimension, and so may a dimension."""
    X = frames().assign_coords(state=("time", np.repeat([0, 1, 0, 1], 30)))
    model = dca.GaussianHMM(2, max_iter=1).fit(X)
    found = model.predict_proba(X)
    assert found.dims == ("time", "other_state")
    np.testing.assert_array_equal(found.state, X.state)
    shares = dca.NMF(3).fit(pixels_of(image()[0])).transform(pixels_of(image()[0]))
    mixture = dca.GaussianMixture(2).fit(shares)
    assert mixture.to_xarray().means.dims == ("component", "other_component")
    assert mixture.predict_proba(shares).dims == ("pixel", "component")


def test_coordinates_of_anchors_come_from_the_data_of_the_fit():
    X = frames()
    hmm = dca.GaussianHMM(2, max_iter=1).fit(X)
    found = hmm.to_xarray(X)
    np.testing.assert_array_equal(found.anchor_time, X.time[hmm.anchor_indices_])
    np.testing.assert_array_equal(found.anchor_hour, X.hour[hmm.anchor_indices_])
    with pytest.raises(DCAError, match="leave X out, or pass the data of the fit"):
        hmm.to_xarray(X[: hmm.anchor_indices_.max()])
    with pytest.raises(DCAError, match="received ndarray"):
        hmm.to_xarray(X.values)
    topics = dca.LatentDirichletAllocation(2, max_iter=0).fit(counts())
    with pytest.raises(DCAError, match="anchors of this model are features"):
        topics.to_xarray(counts())


def test_anchors_that_are_no_row_have_no_coordinates():
    X = frames()
    model = dca.KalmanFilter(2, max_iter=0).fit(X)
    model.anchor_indices_ = np.array([-1, 7])
    assert np.isnat(model.to_xarray(X).anchor_time.values[0])
    assert model.to_xarray(X).anchor_time.values[1] == X.time.values[7]


@pytest.mark.parametrize("proofs", [False, True])
def test_in_cone_keeps_the_rows(proofs):
    pixels = pixels_of(image()[0])
    generators = dca.NMF(3).fit(pixels).components_[:2]
    found = dca.in_cone(pixels, generators, return_proofs=proofs)
    plain = dca.in_cone(pixels.values, generators, return_proofs=proofs)
    inside, bare = (found[0], plain[0]) if proofs else (found, plain)
    assert inside.dims == ("pixel",)
    np.testing.assert_array_equal(inside.values, bare)
    if proofs:
        assert found[1].dims == ("pixel", "band")
        np.testing.assert_array_equal(found[1].values, plain[1])


def test_labels_of_the_fit_stay_an_array():
    model = dca.SubspaceClustering(2, n_components=4).fit(rays())
    assert isinstance(model.labels_, np.ndarray)


@pytest.mark.parametrize("given", ["pandas", "dask", "xarray", "chunks"])
def test_set_output_gives_a_table_from_any_input(given):
    X = frames().clip(0)
    forms = {"pandas": X.to_pandas(), "xarray": X, "chunks": chunked(X)}
    forms["dask"] = dd.from_pandas(forms["pandas"], npartitions=3)
    model = dca.NMF(2).set_output(transform="pandas")
    found = model.fit_transform(forms[given])
    assert isinstance(found, pd.DataFrame)
    assert found.columns.tolist() == model.get_feature_names_out().tolist() == ["component_0", "component_1"]
    np.testing.assert_array_equal(found.to_numpy(), dca.NMF(2).fit(X.values).transform(X.values))
    assert dca.LatentDirichletAllocation(2).fit(counts()).get_feature_names_out().tolist() == [
        "topic_0",
        "topic_1",
    ]


def test_precision_is_kept():
    pixels = pixels_of(image(dtype=np.float32)[0])
    model = dca.NMF(3).fit(pixels)
    assert model.transform(pixels).dtype == np.float32
    assert model.to_xarray().components.dtype == np.float32


def test_without_xarray_the_message_says_what_to_install(monkeypatch):
    import sys

    model = dca.NMF(3).fit(pixels_of(image()[0]).values)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(DCAError, match=r"pip install \"dask-dca\[xarray\]\""):
        model.to_xarray()


@pytest.mark.parametrize("made", [lambda: dca.GaussianHMM(3), lambda: dca.KalmanFilter(2, max_iter=1)])
def test_frames_are_along_the_time_of_the_fit_in_any_order_of_the_dimensions(made, tmp_path):
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(3, size=(4, 10)), 8, axis=1)
    runs = xr.DataArray(np.eye(3, 5)[states] + 0.3 * rng.standard_normal((4, 80, 5)), dims=("run", "time", "channel"))
    model = made().fit(dca.Cube(runs, "channel"))
    model.save(str(tmp_path / "model.zarr"))
    turned = runs.transpose("time", "channel", "run")
    for one in (model, dca.load_model(str(tmp_path / "model.zarr"))):
        assert one.time_dim_in_ == "time"
        assert one.score(turned) == one.score(runs)
        found = one.predict(turned)
        xr.testing.assert_equal(found.transpose(*one.predict(runs).dims), one.predict(runs))
        with pytest.raises(DCAError, match=r"frames of the fit are along 'time', and those of this Cube along 'run'"):
            one.predict(dca.Cube(turned, "channel"))
    model.fit(runs.values.reshape(-1, 5), lengths=[80] * 4)
    assert not hasattr(model, "time_dim_in_")


@pytest.mark.parametrize("joined", [lambda part: dd.concat([part, part]), lambda part: part.repartition(npartitions=3)])
def test_results_of_a_query_that_is_not_optimized_yet(joined):
    table = pd.DataFrame(planted(120, 6, 3)[0], columns=list("abcdef"))
    given = joined(dd.from_pandas(table, npartitions=2))
    model = dca.NMF(3).fit(given)
    found = model.transform(given).compute()
    assert found.index.tolist() == given.index.compute().tolist()
    np.testing.assert_array_equal(found.to_numpy(), model.transform(given.compute()))


def test_a_dimension_is_named_once():
    with pytest.raises(DCAError, match=r"features='band' is no dimension of X, .* or named twice"):
        dca.Cube(image()[0], ("band", "band"))

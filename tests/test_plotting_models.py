"""Pictures of every model: votes, summaries, curves, rows; nothing leaves its axes, legends leave data free."""

import io
from inspect import Parameter, signature

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError

import dask_dca as dca
from dask_dca import plotting
from dask_dca.errors import InvalidInputError
from dask_dca.models.describe import indices_of
from dask_dca.reporting.pictures import feature_names
from tests.report.conftest import NAMES, example

VOTED = [name for name in NAMES if name != "categorical"]  # whose states are no rows


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.mark.parametrize("name", VOTED)
def test_votes_of_every_model_are_those_of_its_certificate(name):
    model, _ = example(name)
    ax = plotting.plot_votes(model, top=0)
    shown = dict(
        zip((tick.get_text() for tick in ax.get_xticklabels()), (bar.get_height() for bar in ax.patches), strict=True)
    )
    expected = dict(zip(map(str, indices_of(model)), model.vote_share_, strict=True))
    assert {row: shown[row] for row in shown} == pytest.approx({row: expected[row] for row in shown})
    assert shown


PICTURES = [
    getattr(plotting, one)
    for one in plotting.__all__
    if next(iter(signature(getattr(plotting, one)).parameters)) == "model"
]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
def test_a_picture_that_a_model_has_not_is_refused(draw):
    """Of each model there is a picture, or a sentence that says what it lacks."""
    required = [one for one in signature(draw).parameters.values() if one.default is Parameter.empty][1:]
    said = {}
    for name in NAMES:
        model, X = example(name)
        given = [{"X": X, "shape": (1, X.shape[1])}.get(one.name, 0) for one in required]
        try:
            draw(model, *given)
        except InvalidInputError as error:
            said[name] = str(error).startswith(f"this {type(model).__name__} has no ")
        plt.close("all")
    assert all(said.values())
    assert len(said) < len(NAMES) or draw is plotting.plot_criterion  # no example has chosen its number of components
    with pytest.raises(NotFittedError):
        draw(dca.NMF(2), *given)


@pytest.mark.usefixtures("unlaid")
@pytest.mark.parametrize("with_data", [True, False])
def test_summary_of_every_model(name, with_data):
    model, X = example(name)
    figure = plotting.plot_summary(model, X if with_data and name != "lda" else None)
    figure.savefig(io.BytesIO(), dpi=40)
    titles = [ax.get_title() for part in figure.subfigs for ax in part.axes if ax.get_title()]
    assert sum(title.startswith("Votes") for title in titles) == (name in VOTED)
    assert len(titles) >= 3


def _drawn(ax):
    ax.figure.draw_without_rendering()
    return ax


@pytest.mark.parametrize("gap", [0.0, 1e-9, 1e-3, 5.0])
def test_ticks_of_curves_stay_inside_and_are_numbers(gap):
    """Nearly flat curves have no offset to add in one's head, and no tick beyond their axes."""
    model = dca.NMF(1).fit(np.eye(3) + 1.0)
    model.log_likelihoods_ = -1234.5678 + gap * np.array([0.0, 0.5, 1.0])
    ax = _drawn(plotting.plot_refinement(model))
    low, high = ax.get_ylim()
    ticks = [tick for tick in ax.yaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert len(ticks) >= 3
    assert ax.yaxis.get_offset_text().get_text() == ""
    values = [float(tick.label1.get_text().replace("\N{MINUS SIGN}", "-")) for tick in ticks]
    np.testing.assert_allclose(values, [tick.get_loc() for tick in ticks], rtol=1e-9)
    assert (np.diff(values) > 0).all()


def test_legends_lie_beside_the_axes():
    kalman, frames = example("kalman")
    nmf, X = example("nmf")
    for ax in (plotting.plot_path(kalman, frames), plotting.plot_plane(nmf, X)):
        _drawn(ax)
        assert ax.get_legend() is None
        (legend,) = ax.figure.legends
        assert not legend.get_window_extent().overlaps(ax.get_window_extent())


def test_the_name_of_a_level_leaves_the_curve_free():
    rng = np.random.default_rng(0)
    mixtures, words = rng.dirichlet(np.full(4, 0.3), 200), rng.dirichlet(np.full(40, 0.1), 4)
    model = dca.LatentDirichletAllocation(4).fit(np.array([rng.multinomial(60, each @ words) for each in mixtures]))
    model.spectrum_, model.noise_edge_ = np.append(0.8, np.linspace(0.2, 0.01, 39)), 0.02  # the curve ends at the level
    for ax in (plotting.plot_spectrum(model), plotting.plot_coverage(example("nmf")[0])):
        _drawn(ax)
        texts = ax.get_legend().get_texts() if ax.get_legend() else ax.texts
        name = texts[0].get_window_extent()
        curve = next(line for line in ax.lines if line.get_marker() == "o")
        assert not [at for at in ax.transData.transform(curve.get_xydata()) if name.contains(*at)]


def test_names_of_components_lie_beside_their_anchors():
    X = np.random.default_rng(0).standard_normal((300, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 100, axis=0)
    model = dca.GaussianMixture(3, "diag").fit(X)
    for towards in (0.01, -0.01):  # rows at the very means, above and below
        model.anchors_ = model.means_ + towards
        ax = _drawn(plotting.plot_components(model))
        marks = ax.transData.transform(np.asarray(model.anchors_ @ model.signature_axes_.T))
        extents = [text.get_window_extent() for text in ax.texts]
        assert len(extents) == 3
        assert not [1 for extent in extents for mark in marks if extent.contains(*mark)]


def test_channels_have_their_names():
    kalman, frames = example("kalman")
    assert plotting.plot_path(kalman, frames, 2).get_ylabel() == frames.columns[2]
    names = [tick.get_text() for tick in plotting.plot_loadings(kalman).get_yticklabels()]
    assert names == list(frames.columns)


BANDS = [400.0, 420.0, 450.0, 500.0, 600.5]


def test_spectra_stand_at_wavelengths_with_their_units():
    X = np.random.default_rng(0).random((60, 5))
    model = dca.NMF(2).fit(X)
    model.feature_names_in_ = np.array(BANDS).astype(str).astype(object)
    ax = plotting.plot_spectra(model, label="wavelength (nm)", value_label="reflectance")
    assert ax.lines[0].get_xdata().tolist() == BANDS
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("wavelength (nm)", "reflectance")


def test_pictures_of_a_cube_need_no_shape_and_no_wavelengths():
    image = xr.DataArray(np.random.default_rng(0).random((5, 6, 10)), {"band": BANDS}, ("band", "y", "x"))
    model = dca.NMF(2).fit(dca.Cube(image, "band"))
    figure = plotting.plot_summary(model, image)
    maps = model.transform(image)
    assert [ax.images[0].get_array().shape for ax in figure.subfigs[1].axes if ax.images] == [(6, 10)] * 2
    spectra = figure.subfigs[0].axes[0]
    assert (spectra.lines[0].get_xdata().tolist(), spectra.get_xlabel()) == (BANDS, "band")
    drawn = plotting.plot_coefficients(maps).axes[1].images[0].get_array()
    np.testing.assert_array_equal(drawn, maps[:, :, 1])
    with pytest.raises(InvalidInputError, match=r"pass shape=\(lines, columns\), whose product is 60"):
        plotting.plot_coefficients(maps.values.reshape(60, 2))
    assert feature_names(model) == ["400", "420", "450", "500", "600.5"]


def test_rows_are_bars_lines_cells_or_images():
    rng = np.random.default_rng(0)
    bars = plotting.plot_row([1.0, -2.0, 0.5], names=["a", "b", "c"])
    assert [bar.get_width() for bar in bars.patches] == [1.0, -2.0, 0.5]
    long = rng.random(5000)
    line = plotting.plot_row(long).lines[-1].get_ydata()
    assert len(line) < 500
    assert (line.max(), line.min()) == (long.max(), long.min())
    many = rng.random((30, 5000))
    cells = np.asarray(plotting.plot_rows(many).images[0].get_array())
    assert cells.shape == (30, 240)
    assert cells.max() == many.max()
    drawn = plotting.plot_images(many[:7, :12], (3, 4), ax=Figure().subplots()).images
    np.testing.assert_array_equal(drawn[6].get_array(), many[6, :12].reshape(3, 4))
    with pytest.raises(InvalidInputError, match="12 features"):
        plotting.plot_images(many[:7, :12], (3, 5))


def test_states_have_lanes():
    ax = plotting.plot_lanes([0, 0, 2, 2, 1])
    spans = [
        [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in lane.get_paths()] for lane in ax.collections
    ]
    assert spans == [[(-0.5, 1.5)], [(3.5, 4.5)], [(1.5, 3.5)]]


def test_corners_are_where_the_anchors_are():
    rng = np.random.default_rng(0)
    shares = np.vstack([np.eye(3), rng.dirichlet(np.ones(3), 200)])
    X = shares @ rng.random((3, 6))
    ax = plotting.plot_corners(dca.NMF(3).fit(X), X)
    rows, marks = (np.asarray(dots.get_offsets()) for dots in ax.collections)
    sides = np.roll(marks, -1, axis=0) - marks
    offsets = rows[:, None] - marks
    across = sides[:, 0] * offsets[..., 1] - sides[:, 1] * offsets[..., 0]
    assert ((across > -1e-9).all(axis=1) | (across < 1e-9).all(axis=1)).all()  # all rows are inside the triangle


@pytest.mark.parametrize("missing", [np.nan, -1.0])
def test_rows_with_missing_entries_are_drawn_where_their_others_say(missing):
    rng = np.random.default_rng(0)
    X = rng.dirichlet(np.full(3, 0.3), 150) @ rng.random((3, 12)) + 0.01 * rng.random((150, 12))
    holes = np.where(rng.random(X.shape) < 0.1, missing, X)
    for model, draw in (
        (dca.NMF(3, missing=missing), plotting.plot_plane),
        (dca.NMF(3, missing=missing), plotting.plot_corners),
        (dca.GaussianMixture(1, "diag", missing=missing), plotting.plot_components),
        (dca.SubspaceClustering(1, missing=missing), plotting.plot_clusters),
    ):
        drawn = [draw(model.fit(X), given).collections[0].get_offsets() for given in (X, holes)]
        assert abs(drawn[1] - drawn[0]).max() < 0.15 * np.ptp(drawn[0])
        plt.close("all")


def test_pictures_of_other_data_are_refused():
    X = np.random.default_rng(0).random((40, 5))
    model, wild = dca.NMF(2, known=[30, 31]).fit(X), np.where(X > 0.99, np.inf, X)
    for given, said in ((np.hstack([X, X]), "is expecting 5 features"), (wild, "infinity"), (X[:20], "row 31 is an")):
        with pytest.raises(InvalidInputError, match=said):
            plotting.plot_plane(model, given)


def test_what_a_model_lacks_is_said():
    with pytest.raises(InvalidInputError, match=r"NMF has no spectrum_.*plot_summary\(model\)"):
        plotting.plot_spectrum(example("nmf")[0])
    with pytest.raises(InvalidInputError, match="no bic_curve_"):
        plotting.plot_criterion(example("mixture")[0])


def test_names_are_no_formulas():
    ax = _drawn(plotting.plot_row([1.0, 2.0], names=["$x^2$", "a" * 50]))
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names[0] == r"\$x^2\$"  # as matplotlib escapes it
    assert len(names[1]) == 17

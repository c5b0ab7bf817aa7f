"""Scripts written for neighbours, with only the import changed: each line runs, or says in one line what to change."""

import ast
import importlib.util
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import dask_dca
from dask_dca._registry import ELSEWHERE
from dask_dca.errors import InvalidInputError

SCRIPTS = sorted((Path(__file__).parent / "swapped").glob("*.py"))
PAGE = Path(__file__).parents[1] / "docs/coming-from.md"
IMPORTS = {
    r"from (sklearn\.decomposition|sklearn\.mixture|pykalman|dask_ml\.cluster) import": "from dask_dca import",
    r"from hmmlearn import hmm": "import dask_dca as hmm",
}
EACH = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


def statements(script):
    """Each statement of a script, and the line that it is to be changed to, if any."""
    text = script.read_text()
    lines = text.splitlines()
    for part in ast.parse(text).body:
        own = "\n".join(lines[part.lineno - 1 : part.end_lineno])
        source, _, instead = own.partition("  # instead: ")
        yield source, instead


def swapped(source):
    for pattern, own in IMPORTS.items():
        source = re.sub(pattern, own, source)
    return source


def in_one_line(source):
    return re.sub(r"\s+", " ", source).replace("( ", "(").replace(" )", ")")


def error_of(source, names):
    try:
        exec(source, names)
    except (TypeError, AttributeError, ImportError, NameError) as error:
        return error


def run(script, capsys):
    """Run a script with its import changed; what its lines said that can't run, and what stands there instead."""
    names, said = {}, []
    for source, instead in statements(script):
        found = error_of(swapped(source), names)
        if bool(found) != bool(instead):
            pytest.fail(f"{source}: {found!r}, and instead {instead!r}")
        if instead:
            exec(instead, names)
        if not isinstance(found, NameError | None):  # of a class whose import has said what to use
            said.append((source, str(found), instead))
    capsys.readouterr()
    return said


@EACH
@pytest.mark.filterwarnings("ignore")
def test_the_neighbour_itself_runs_the_script(script, capsys):
    module = {"dask": "dask_ml"}.get(script.stem.split("_")[0], script.stem.split("_")[0])
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    exec(re.sub(r"  # instead: .*", "", script.read_text()), {})
    capsys.readouterr()


@EACH
def test_with_the_import_changed_each_line_runs_or_says_what_to_change(script, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lengths by position, say
        said = run(script, capsys)
    for source, message, _ in said:
        assert "\n" not in message
        assert re.search(r"; (use|leave it out|call|give|fitted attributes end)|: use ", message), (source, message)


def test_the_table_of_the_page_is_what_happens(capsys):
    rows = []
    for script in SCRIPTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = run(script, capsys)
        for source, message, instead in said:
            rows.append(f"| `{in_one_line(source)}` | {message} | `{swapped(instead)}` |")
    page = PAGE.read_text()
    missing = [row for row in rows if row not in page]
    assert not missing, "the page should have\n" + "\n".join(missing)
    assert page.count("\n| `") == len(rows)


@pytest.mark.filterwarnings("ignore")
def test_what_stands_instead_leaves_no_more_of_data_without_pure_rows(capsys):
    script = next(path for path in SCRIPTS if path.stem == "sklearn_nmf")
    theirs, own = {}, {}
    exec(re.sub(r"  # instead: .*", "", script.read_text()), theirs)
    for source, instead in statements(script):
        exec(instead or swapped(source), own)
    capsys.readouterr()
    assert own["left"] <= 1.02 * theirs["left"]


def test_attributes_of_neighbours_are_answered():
    model = dask_dca.KalmanFilter.from_parameters(np.eye(2), np.eye(2), np.eye(2), np.eye(2))
    with pytest.raises(AttributeError, match=r"'transition_covariance'; fitted .* transition_covariance_"):
        _ = model.transition_covariance
    with pytest.raises(AttributeError, match=r"'transition_offsets'; states have none: observation_offsets_ holds"):
        _ = model.transition_offsets
    with pytest.raises(AttributeError, match=r"'NMF' object has no attribute 'nothing'$"):
        _ = dask_dca.NMF().nothing
    with pytest.raises(AttributeError, match=r"'GMM'; it has NMF, .* GaussianMixture"):
        _ = dask_dca.GMM
    with pytest.raises(InvalidInputError, match=r"no report of a str; .* dask_dca\.load_model\(path\)"):
        dask_dca.report("model.zarr")
    for name in ELSEWHERE:
        with pytest.raises(ImportError, match=f"dask_dca has no {name}: use [A-Zi]"):
            getattr(dask_dca, name)


def test_counterparts():
    rng = np.random.default_rng(0)
    X = np.abs(rng.standard_normal((60, 4)))
    nmf = dask_dca.NMF(2).fit(X)
    assert nmf.score(X) == -nmf.reconstruction_err(X)
    for kind in ("full", "tied", "diag", "spherical", "tied-spherical"):
        model = dask_dca.GaussianMixture(2, kind).fit(X)
        wanted = np.linalg.inv(model.covariances_) if kind in ("full", "tied") else 1.0 / model.covariances_
        np.testing.assert_allclose(model.precisions_, wanted)
    with pytest.raises(AttributeError, match=r"use reconstruction_err\(X\), one pass"):  # the fit finds no coefficients
        _ = nmf.reconstruction_err_
    topics = dask_dca.LatentDirichletAllocation(2, min_df=1).fit(np.rint(10 * X))
    np.testing.assert_array_equal(topics.doc_topic_prior_, topics.alpha_)

"""What RESULTS.md begins with, and results that are kept."""

import json
import re

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks import harness, markov_data, report, users_choice


def document(name, *checks):
    kinds = ("must", "value", "met")
    return {
        "id": name,
        "title": f"Title of {name}, k = 2",
        "protocol": "How.",
        "quick": False,
        "versions": {},
        "missing": [],
        "checks": [dict(zip(kinds, check, strict=True)) for check in checks],
        "tables": [],
        "plots": [],
        "records": [],
    }


def test_results_begin_with_what_is_not_met_and_a_table_of_contents(tmp_path):
    lost = ("less than one", "; ".join(map(str, range(1000))), False)
    for one in (
        document("Q10", lost),
        document("Q2", ("a", "b", True)),
        document("S1", ("c", "d", None)),
        document("soak"),
    ):
        harness.save(one, tmp_path)
    report.write(tmp_path, tmp_path / "RESULTS.md")
    text = (tmp_path / "RESULTS.md").read_text()
    assert "1 of 2 requirements are met" in text
    assert re.findall(r"^## (\w+):", text, flags=re.MULTILINE) == ["Q2", "Q10", "S1", "soak"]
    head = text[: text.index("\n## ")]
    assert "[Q10](#q10-title-of-q10-k--2)" in head
    assert max(map(len, head.splitlines())) < 400
    assert lost[1] in text, "the section has all of it"
    assert "| c | d | reported |" in text


def test_kept_results_are_judged_by_todays_requirements(tmp_path):
    benchmark = cli.BENCHMARKS["Q8-hmm"]()
    record = dict(zip(benchmark.param_names, benchmark.cases[0], strict=True))
    record |= {"likelihood": 0.5, "scored": True, "error": 0.1, "seconds": 1.0}
    harness.save(document("Q8-hmm") | {"records": [record], "versions": {"python": "3"}}, tmp_path)
    cli._judge(tmp_path)
    found = json.loads((tmp_path / "Q8-hmm.json").read_text())
    assert (found["records"], found["versions"]) == ([record], {"python": "3"})
    assert found["title"] == benchmark.title
    assert {"must": "no model is likelier than the truth", "value": "at most 0.500", "met": False} in found["checks"]


@pytest.mark.parametrize("kind", ["plain", "correlated", "variances"])
def test_the_truth_of_a_planted_model_is_that_of_its_frames(kind):
    data = markov_data.chain(3, 4, 30.0, 20_000, 0, kind)
    for state, (mean, covariance) in enumerate(zip(data.means, data.covariances, strict=True)):
        own = data.frames[data.states == state]
        np.testing.assert_allclose(np.cov(own.T), covariance, atol=0.12 * covariance.max())
        np.testing.assert_allclose(own.mean(axis=0), mean, atol=0.1 * np.sqrt(covariance.max()))


@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
def test_a_loss_worse_than_none_is_a_failure():
    task = users_choice.factorization(True, "MiniBatchNMF", 0)
    rows, components = task.methods["scikit-learn MiniBatchNMF"](task.data)
    assert task.loss(task.data, (rows, components)) < 0.1
    with pytest.raises(ValueError, match="worse than no factorization"):
        task.loss(task.data, (10.0 * rows, components))


def test_a_peers_quality_is_its_loss_and_not_a_share_of_it_more():
    """Half a per cent of 30 nats is more than what tells a good mixture from a bad one."""
    records = [
        {"model": "GaussianMixture", "method": name, "cpu": cpu, "loss": loss}
        for name, cpu, loss in (("dask_dca", 1.0, 30.1), ("scikit-learn GaussianMixture", 20.0, 30.0))
    ]
    (check,) = users_choice.UsersChoice().check(records)
    assert not check.met

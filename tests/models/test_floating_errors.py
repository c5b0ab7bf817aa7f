"""What the caller has set with np.seterr changes no fit and no result, and stays as it was."""

import dask
import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from tests.conftest import planted

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.eye(3, 6) * 90, 30, axis=0) + RNG.standard_normal((90, 6))
COUNTS = np.array([RNG.multinomial(60, h @ np.kron(np.eye(3), np.full(4, 0.25))) for h in RNG.dirichlet([0.3] * 3, 60)])
MODELS = {
    "NMF": (dca.NMF(3), planted(60, 6, 3)[0], ("transform", "reconstruction_err")),
    "mixture": (dca.GaussianMixture(3), GROUPS, ("predict_proba", "score", "bic")),
    "HMM": (dca.GaussianHMM(2, max_iter=2), GROUPS, ("predict_proba", "predict", "score")),
    "Kalman filter": (dca.KalmanFilter(2, max_iter=1), GROUPS, ("smooth", "predict", "loglikelihood")),
    "topics": (dca.LatentDirichletAllocation(3), COUNTS, ("transform", "score", "perplexity")),
    "clusters": (dca.SubspaceClustering(2, 6), GROUPS, ("predict",)),
}


def results(model, X, names):
    """All fitted numbers, what the methods give, and of data in memory the page, as bytes."""
    found = {key: value for key, value in vars(model.fit(X)).items() if key.endswith("_")}
    for name in names:
        found[name] = dask.compute(getattr(model, name)(X))[0]
    if isinstance(X, np.ndarray):
        found["page"] = dca.report(model)
    parts = {key: value if isinstance(value, tuple) else (value,) for key, value in found.items()}
    return {key: [np.asarray(part).tobytes() for part in value] for key, value in parts.items()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunked", [False, True])
def test_the_callers_floating_point_errors_change_nothing(name, chunked):
    model, X, names = MODELS[name]
    data = da.from_array(X, chunks=(25, -1)) if chunked else X
    with dask.config.set(scheduler="synchronous"):  # tasks run where the errors are set
        expected = results(model, data, names)
        for what in ("raise", "ignore")[: 1 + chunked]:
            with np.errstate(all=what):
                found = results(model, data, names)
                assert set(np.geterr().values()) == {what}
            assert found == expected


@pytest.mark.parametrize("chunked", [False, True])
def test_of_anchors_and_cones(chunked):
    X, _ = planted(60, 6, 3)
    data = da.from_array(X, chunks=(25, -1)) if chunked else X
    with np.errstate(all="raise"), dask.config.set(scheduler="synchronous"):
        anchors = dca.find_anchors(data, 3)
        inside = np.asarray(dca.in_cone(data, X[anchors.indices], exact=True))
    assert inside.all()

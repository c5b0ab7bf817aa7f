"""Steps that Q-ablation takes away are those of today's recipes."""

import inspect

import pytest

import dask_dca as dca
from benchmarks.ablated_steps import STEPS

FITS = {
    "mixture": dca.GaussianMixture,
    "hmm": dca.GaussianHMM,
    "kalman": dca.KalmanFilter,
    "lda": dca.LatentDirichletAllocation,
    "subspace": dca.SubspaceClustering,
    "nmf": dca.find_anchors,
}


@pytest.mark.parametrize("model", STEPS)
def test_every_step_is_there_to_be_taken_away(model):
    known = inspect.signature(FITS[model.partition(",")[0]]).parameters
    for step in STEPS[model].values():
        assert step.options or step.instead
        assert set(step.options) <= set(known)
        with step.away():  # an error where nothing has that name
            pass

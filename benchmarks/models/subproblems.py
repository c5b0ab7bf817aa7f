"""Q-layers: the number of sub-problems, for mixtures, hidden Markov models and cones."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any, ClassVar

import numpy as np

import dask_dca as dca
from benchmarks import markov_data, mixture_data, subspace_data, subspaces
from benchmarks.ablation_data import quality
from benchmarks.harness import SHOWN, Benchmark, Plot, Record, Table
from benchmarks.methods import MAIN
from benchmarks.mixture_peers import Fit
from benchmarks.mixture_scores import mean_scores, scores

LAYERS = (1, 2, 5, 10, 20, 50)  # times k ln k
METHODS = {MAIN: {}, "dask_dca start": {"max_iter": 0}, "dca_paper": {"method": "paper"}}


class SubProblems(Benchmark):
    """How good fits are by as many sub-problems."""

    id = "Q-layers"
    title = "Quality by the number of sub-problems: mixtures, hidden Markov models and cones"
    protocol = (
        "s = layers x k ln k sub-problems, rounded up (of cones: for each cone in the default, for all of them in "
        "the paper's method). Mixture: the paper's protocol, variance 2, noise .5; quality: clustering accuracy; "
        "anchors: share of the planted means among them. Hidden Markov model: six states in 20 dimensions at a "
        "median distance of 4, 2,000 frames; quality: held-out log likelihood per frame minus that of the true "
        "model. Cones: Q10's, span 60, noise .2, 40 anchors; quality: accuracy; anchors: their precision. Five "
        "seeds; dask_dca start: no passes of EM (max_iter=0), of cones labels by codes. CPU seconds of one "
        "process."
    )
    param_names: ClassVar = ["data", "layers", "seed", "method"]
    params: ClassVar = [("mixture", "chain", "cones"), LAYERS, tuple(range(5)), tuple(METHODS)]
    quick_params: ClassVar = {"layers": (1, 2), "seed": (0,), "data": ("chain",)}
    tables: ClassVar = [
        *(
            Table(f"Quality, {SHOWN.get(data, data)}", ["layers"], "quality", digits=3, where={"data": data})
            for data in params[0]
        ),
        *(
            Table(f"Anchors, {data}", ["layers"], "anchors", digits=3, where={"data": data})
            for data in ("mixture", "cones")
        ),
        Table("CPU seconds", ["data", "layers"], "seconds", better="min", digits=2),
    ]
    plots: ClassVar = [
        Plot(
            SHOWN.get(data, data),
            "layers",
            ["quality", "anchors", "seconds"] if data != "chain" else ["quality", "seconds"],
            {"data": data},
        )
        for data in params[0]
    ]

    def setup(self, data: str, layers: int, seed: int, method: str) -> None:
        if data == "mixture":
            self.data = mixture_data.paper(2.0, 0.5, seed)
        elif data == "chain":
            self.data = markov_data.chain(6, 20, 4.0, 300 if self.quick else 2000, seed)
        else:
            self.data = subspace_data.cones(60, 0.2, seed, common=False)

    def measure(self, data: str, layers: int, seed: int, method: str) -> Record:
        k = {"mixture": 5, "chain": 6, "cones": 10 if method != "dca_paper" else 40}[data]
        options = {**METHODS[method], "n_subproblems": math.ceil(layers * k * math.log(k)), "random_state": seed}
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = FITS[data](self.data, options)
        return {"seconds": time.process_time() - begin} | SCORES[data](self.data, found)


def _fit_mixture(data: mixture_data.Sample, options: dict[str, Any]) -> dca.GaussianMixture:
    return dca.GaussianMixture(data.k, views=data.views, **options).fit(data.X)


def _fit_chain(data: markov_data.Chain, options: dict[str, Any]) -> dca.GaussianHMM:
    return dca.GaussianHMM(len(data.means), **options).fit(data.frames)


def _fit_cones(data: subspace_data.Planted, options: dict[str, Any]) -> dca.SubspaceClustering:
    return dca.SubspaceClustering(data.k, 40, **options).fit(data.X)


def _score_mixture(data: mixture_data.Sample, model: dca.GaussianMixture) -> Record:
    found = Fit(model.means_, model.predict(data.X), model.anchor_indices_, model.score)
    return {"quality": scores(data, found)["accuracy"], "anchors": mean_scores(data, found)["anchors"]}


def _score_chain(data: markov_data.Chain, model: dca.GaussianHMM) -> Record:
    return {"quality": quality("hmm", data, model), "anchors": None}


def _score_cones(data: subspace_data.Planted, model: dca.SubspaceClustering) -> Record:
    anchors = float(np.mean(data.is_ray[model.anchor_indices_]))
    return {"quality": subspaces.accuracy(data.labels, model.labels_), "anchors": anchors}


FITS = {"mixture": _fit_mixture, "chain": _fit_chain, "cones": _fit_cones}
SCORES = {"mixture": _score_mixture, "chain": _score_chain, "cones": _score_cones}

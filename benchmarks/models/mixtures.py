"""Q4 and Q5: Gaussian mixtures by the paper's protocol, unequal and non-spherical ones, small sets, and images."""

from __future__ import annotations

import itertools
from typing import ClassVar

from sklearn.metrics import adjusted_rand_score

from benchmarks import mixture_data
from benchmarks.harness import Benchmark, Check, Grid, Record, Table, group, mean, timed
from benchmarks.methods import MissingError
from benchmarks.mixture_data import HEAVY, IMAGES, SMALL, UNEQUAL, Sample
from benchmarks.mixture_peers import MAIN, Fit, fit
from benchmarks.mixture_scores import cells, compare, likelihood, mean_scores, scores, share_of_time

VARIANCES = tuple(round(0.2 * i, 1) for i in range(1, 31))
NOISES = tuple(round(0.1 * i, 1) for i in range(30))
METRICS = ("anchors", "accuracy", "error", "information", "rand", "seconds")
IMAGE_FORM = "tied-spherical"  # one variance for all, as k-means has it; scikit-learn's EM: one per component
SUCCESS = 0.9  # the clustering accuracy that draws the phase boundary


class _Mixtures(Benchmark):
    """Cases of mixtures; the method varies fastest, so that methods run in turn."""

    data: Sample
    own: ClassVar[str] = "auto"  # form of the library's covariances

    def fit(self, method: str, covariance_type: str, seed: int) -> tuple[Fit, Record]:
        """Fit and label all rows, and score."""
        found, seconds = timed(lambda: fit(method, self.data, covariance_type, seed, self.own))
        return found, scores(self.data, found) | {"seconds": seconds}


class PaperGrid(_Mixtures):
    """The paper's figure: six metrics over a grid of variance and noise."""

    id = "Q4"
    title = "Gaussian mixture by the paper's protocol, over variance and noise"
    protocol = (
        "Five clusters of 300, 500, 400, 300 and 500 rows, three views of 200, 120 and 160 features, means "
        "uniform in [0, 1]; variance within a cluster, and noise of a standard deviation, on a grid of 30 x 30; "
        "the means are planted among the rows, which are shuffled. k-means, EM and the moment methods: every "
        "third value of both. Spherical covariances for all but the library, which chooses its own. Anchors: "
        "share of the planted means among the anchors (of a method that has none: the rows nearest to its means). "
        "Error: relative l2 error of the means. Information: normalised; Rand: adjusted. One run per cell."
    )
    methods: ClassVar = (MAIN, "dca_paper", "kmeans x1", "kmeans x10", "em x1", "moments", "moments_views")
    covariance_type = "spherical"
    param_names: ClassVar = ["variance", "noise", "seed", "method"]
    params: ClassVar = [VARIANCES, NOISES, (0,), methods]
    quick_params: ClassVar = {"variance": (0.6,), "noise": (1.5,), "method": (MAIN, "kmeans x10")}  # all: Q4-line
    tables: ClassVar = [
        Table("Clustering accuracy, means over the noise (peers: every third value)", ["variance"], "accuracy"),
    ]
    plots: ClassVar = [
        Grid("six metrics", "noise", "variance", list(METRICS)),
        Grid("phase boundary", "noise", "variance", ["accuracy"], level=SUCCESS),
    ]

    def setup(self, variance: float, noise: float, seed: int, method: str) -> None:
        if not self.runs(variance, noise, method):
            raise MissingError("")
        self.data = mixture_data.paper(variance, noise, seed, part=8 if self.quick else 1)

    def runs(self, variance: float, noise: float, method: str) -> bool:
        """Whether the method is run in a cell: peers on every third value."""
        coarse = VARIANCES.index(variance) % 3 == 2 and NOISES.index(noise) % 3 == 0
        return coarse or method in (MAIN, "dca_paper")

    def measure(self, variance: float, noise: float, seed: int, method: str) -> Record:
        found, record = self.fit(method, self.covariance_type, seed)
        return record | mean_scores(self.data, found)

    def check(self, records: list[Record]) -> list[Check]:
        must = f"the phase boundary (accuracy {SUCCESS}) lies outside k-means x10 and EM everywhere"
        lost, judged = [], 0
        for key, values in cells(records, ("variance", "noise"), "accuracy").items():
            peers = [values[name] for name in ("kmeans x10", "em x1") if name in values]
            if MAIN in values and peers:
                judged += 1
                lost += [key] if values[MAIN] < SUCCESS <= max(peers) else []
        text = ", ".join(f"variance {variance} noise {noise}" for variance, noise in lost)
        return [Check(must, f"{len(lost)} of {judged} cells lost: {text or '-'}", not lost if judged else None)]


class PaperLine(PaperGrid):
    """The cells of the grid where methods differ, several seeds."""

    id = "Q4-line"
    title = "Gaussian mixture by the paper's protocol, noise .5"
    protocol = "As Q4, with ten runs per cell; EM from the truth starts at the true means and variances."
    methods: ClassVar = (MAIN, "dask_dca start", *PaperGrid.methods[1:], "em x10", "em truth")
    params: ClassVar = [(2.0, 3.0, 4.0, 5.0), (0.5,), tuple(range(10)), methods]
    quick_params: ClassVar = {"variance": (2.0,), "seed": (0,)}
    tables: ClassVar = [
        Table("Clustering accuracy", ["variance"], "accuracy", digits=3),
        Table("Anchors", ["variance"], "anchors"),
        Table("Error of the means", ["variance"], "error", better="min", digits=3),
        Table("Mutual information", ["variance"], "information", digits=3),
        Table("Adjusted Rand", ["variance"], "rand", digits=3),
    ]
    plots: ClassVar = []

    def runs(self, variance: float, noise: float, method: str) -> bool:
        """Every method in every cell."""
        return True

    def check(self, records: list[Record]) -> list[Check]:
        return [compare(records, ("variance",), "accuracy", "kmeans x10", 0.0, "at variance 3, 4, 5 above", 3.0)]


EMS = ("em x1", "em x10", "em ++ x1", "em ++ x10")


class Unequal(_Mixtures):
    """Mixtures that are neither spherical nor equal."""

    id = "Q4b"
    title = "Gaussian mixture, unequal weights, variances of their own"
    protocol = (
        "3,000 rows, 30 features; weights Dirichlet(2) + .3/k; each component has its own variances over .6 "
        "decades (in 'scales' over one decade, on feature scales over two); as many other rows for the held-out "
        "log-likelihood. Diagonal covariances, except for the library, which chooses its own; ++: started by "
        "k-means++ instead of k-means; truth: EM that starts at the true parameters. Five mixtures."
    )
    param_names: ClassVar = ["mixture", "seed", "method"]
    params: ClassVar = [tuple(UNEQUAL), tuple(range(5)), (MAIN, "dask_dca start", "kmeans x10", *EMS, "em truth")]
    quick_params: ClassVar = {"mixture": ("k=5 sep 2",), "seed": (0,)}
    tables: ClassVar = [
        Table("Adjusted Rand", ["mixture"], "rand", digits=3),
        Table("Held-out log-likelihood, of a row", ["mixture"], "likelihood", digits=3, where={"scored": True}),
        Table("Seconds", ["mixture"], "seconds", better="min", digits=2),
    ]

    def setup(self, mixture: str, seed: int, method: str) -> None:
        self.data = mixture_data.unequal(mixture, seed, 300 if self.quick else 3000)

    def measure(self, mixture: str, seed: int, method: str) -> Record:
        found, record = self.fit(method, "diag", seed)
        return record | likelihood(found, self.data.test)

    def check(self, records: list[Record]) -> list[Check]:
        names = ("mixture",)
        return [
            compare(records, names, "rand", ("kmeans x10", *EMS), 0.002, ">= (less .002)"),
            compare(records, names, "likelihood", EMS, 0.005, ">= (less .005)"),
            compare(records, names, "rand", "em truth", 0.02, "within .02 of"),
        ]


class HeavyTails(_Mixtures):
    """Clusters whose rows are further out than normal ones."""

    id = "Q4-tails"
    title = "Gaussian mixture, heavy tails"
    protocol = (
        "Planted clusters of Student's t distributions with 3, 4 and 5 degrees of freedom, exponentials of normal "
        "ones ('skew'), and breast_cancer (four fifths of it); other rows for the held-out log-likelihood. "
        "Covariances are diagonal, where it says so full (breast_cancer: full), except for the library, which "
        "chooses its own; 'dask_dca normal': with `tails='normal'`. Three draws. Times are omitted, since the "
        "machine was busy."
    )
    param_names: ClassVar = ["set", "seed", "method"]
    params: ClassVar = [tuple(HEAVY), tuple(range(3)), (MAIN, "dask_dca normal", "kmeans x10", "em x10")]
    quick_params: ClassVar = {"set": ("t 3, k=5 p=5",), "seed": (0,)}
    tables: ClassVar = [
        Table("Adjusted Rand", ["set"], "rand", digits=3),
        Table("Held-out log-likelihood, of a row", ["set"], "likelihood", digits=2, where={"scored": True}),
    ]

    def setup(self, name: str, seed: int, method: str) -> None:
        self.data = mixture_data.heavy(name, seed)

    def measure(self, name: str, seed: int, method: str) -> Record:
        found, record = self.fit(method, HEAVY[name][-1], seed)
        return record | likelihood(found, self.data.test)

    def check(self, records: list[Record]) -> list[Check]:
        names = ("set",)
        return [
            compare(records, names, "rand", ("dask_dca normal", "kmeans x10", "em x10"), 0.002, ">= (less .002)"),
            compare(records, names, "likelihood", ("dask_dca normal", "em x10"), 0.005, ">= (less .005)"),
        ]


class Small(_Mixtures):
    """Sets of few features."""

    id = "Q4b-low"
    title = "Gaussian mixture, few features"
    protocol = (
        "Iris and wine (full covariances), wine and digits (diagonal) as scikit-learn ships them, blobs in two"
        " dimensions, anisotropic (three, full) and overlapping (five, diagonal); rows shuffled by the seed, five"
        " seeds. The library chooses its own form."
        " Likelihood: of the data themselves, a row. EM as scikit-learn's defaults have it (reg_covar 1e-6)."
    )
    param_names: ClassVar = ["set", "seed", "method"]
    params: ClassVar = [tuple(SMALL), tuple(range(5)), (MAIN, "kmeans x10", *EMS)]
    quick_params: ClassVar = {"set": ("iris",), "seed": (0,)}
    tables: ClassVar = [
        Table("Adjusted Rand", ["set"], "rand", digits=3),
        Table("Log-likelihood", ["set"], "likelihood", digits=2, where={"scored": True}),
        Table("Seconds", ["set"], "seconds", better="min", digits=3),
    ]

    def setup(self, name: str, seed: int, method: str) -> None:
        self.data = mixture_data.small(name, seed)

    def measure(self, name: str, seed: int, method: str) -> Record:
        found, record = self.fit(method, SMALL[name], seed)
        return record | likelihood(found, self.data.X)

    def check(self, records: list[Record]) -> list[Check]:
        return [compare(records, ("set",), "rand", ("kmeans x10", *EMS), 0.002, ">= (less .002)")]


class Images(_Mixtures):
    """The paper's image sets."""

    id = "Q5"
    own = IMAGE_FORM
    title = "Gaussian mixture on images"
    protocol = (
        "Grey images of the first k classes, pixels as features, rows shuffled; the class is the truth. Spherical "
        "covariances (of the library one variance for all, the form of k-means); no views are given. Inertia: of "
        "the partition, relative to that of k-means with ten starts (same seed). Five seeds."
    )
    param_names: ClassVar = ["set", "k", "seed", "method"]
    methods: ClassVar = ("kmeans x10", MAIN, "dca_paper", "kmeans x1", "em x1", "moments", "moments_views")
    params: ClassVar = [tuple(IMAGES), (5, 10, 15, 20, 100), tuple(range(5)), methods]
    quick_params: ClassVar = {"set": ("YALE",), "k": (5,), "seed": (0,)}
    tables: ClassVar = [
        Table("Clustering accuracy", ["set", "k"], "accuracy"),
        Table("Normalised mutual information", ["set", "k"], "information"),
        Table("Inertia, in parts of k-means x10", ["set", "k"], "relative", better="min", digits=3),
        Table("Seconds", ["set", "k"], "seconds", better="min", digits=2),
    ]

    def setup(self, name: str, k: int, seed: int, method: str) -> None:
        if k not in (5, 10, IMAGES[name][2], 20) or (k == 15 and name != "YALE"):
            raise MissingError("")
        self.data = mixture_data.images(name, k)
        if method != MAIN and method.startswith(("moments", "em")) and self.data.X.shape[1] > 2000 and seed > 0:
            raise MissingError("")  # half a minute each on 4,096 features: one seed

    def measure(self, name: str, k: int, seed: int, method: str) -> Record:
        _, record = self.fit(method, IMAGE_FORM, seed)
        if method == "kmeans x10":  # the first of a case
            self.reference = record["inertia"]
        return record | {"rows": len(self.data.X), "relative": record["inertia"] / self.reference}

    def check(self, records: list[Record]) -> list[Check]:
        own = [record for record in records if record["method"] == MAIN]
        means = {key: mean([r["relative"] for r in rows]) for key, rows in group(own, "set", "k").items()}
        worst = max((record["relative"] for record in own), default=float("nan"))
        return [
            Check(
                "inertia <= 1.005 x k-means x10 on the mean of each set, no single run above 1.02",
                f"greatest mean {max(means.values(), default=float('nan')):.4f}, worst run {worst:.4f}",
                max(means.values()) <= 1.005 and worst <= 1.02 if means else None,
            ),
            compare(records, ("set", "k"), "accuracy", "kmeans x10", 0.01, ">= (less .01)"),
            share_of_time(records, 1400, 0.5),
            share_of_time(records, 5000, 0.2),
        ]


class SamePartition(_Mixtures):
    """Ten seeds, one partition."""

    id = "Q5-seeds"
    title = "Ten seeds: are the partitions the same?"
    protocol = (
        "The least adjusted Rand index between any two of ten seeds' partitions of the same rows, on the sets of Q5"
        " (all classes; spherical) and the mixtures of Q4b (diagonal; the library chooses its own)."
        " EM: scikit-learn's, one start."
    )
    param_names: ClassVar = ["set", "method"]
    params: ClassVar = [(*IMAGES, *UNEQUAL), (MAIN, "kmeans x1", "kmeans x10", "em x1")]
    quick_params: ClassVar = {"set": ("k=5 sep 2",)}
    tables: ClassVar = [Table("Least adjusted Rand between two seeds", ["set"], "agreement", digits=3)]

    def setup(self, name: str, method: str) -> None:
        if name in IMAGES:
            self.data = mixture_data.images(name, IMAGES[name][2])
        else:
            self.data = mixture_data.unequal(name, 0, 300 if self.quick else 3000)
        if method == "em x1" and self.data.X.shape[1] > 2000:
            raise MissingError("")

    def measure(self, name: str, method: str) -> Record:
        form = IMAGE_FORM if name in IMAGES else "diag"
        own = form if name in IMAGES else self.own
        labels = [fit(method, self.data, form, seed, own).labels for seed in range(2 if self.quick else 10)]
        pairs = itertools.combinations(labels, 2)
        return {"agreement": min(float(adjusted_rand_score(one, other)) for one, other in pairs)}

    def check(self, records: list[Record]) -> list[Check]:
        must = ">= .99 wherever k-means x10 has >= .95"
        values = cells(records, ("set",), "agreement")
        sure = [key[0] for key, by in values.items() if by.get("kmeans x10", 0) >= 0.95 and MAIN in by]
        lost = [name for name in sure if values[(name,)][MAIN] < 0.99]
        text = f"{len(lost)} of {len(sure)} sets lost: {', '.join(lost) or '-'}"
        return [Check(must, text, not lost if sure else None)]

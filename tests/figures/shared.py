"""What several pages say of the same benchmarks."""

import statistics

from benchmarks.methods import LIBRARY
from tests.figures.results import kinds, mean, ratio, values

OURS = "dask_dca"


def best_other(identity: str, **where: object) -> float:
    """The greatest mean share of rays that a method not of this library finds."""
    others = [name for name in kinds(identity, "method") if name not in LIBRARY]
    return max(
        mean(identity, "recall", method=name, **where)
        for name in others
        if values(identity, "recall", method=name, **where)
    )


def thousands(value: float) -> str:
    return f"{value:,.0f}"


def times_on_images() -> tuple[list[float], list[float]]:
    """Shares of the time of k-means with ten starts, on sets from 1,440 rows up and on smaller ones."""
    large, small = [], []
    for images in kinds("Q5", "set"):
        for k in kinds("Q5", "k"):
            if values("Q5", "rows", set=images, k=k):
                share = ratio("Q5", "seconds", OURS, "kmeans x10", set=images, k=k)
                (large if values("Q5", "rows", set=images, k=k)[0] >= 1440 else small).append(share)
    return large, small


def inertia_on_images() -> list[float]:
    sets = [(images, k) for images in kinds("Q5", "set") for k in kinds("Q5", "k")]
    return [
        mean("Q5", "relative", set=images, k=k, method=OURS)
        for images, k in sets
        if values("Q5", "relative", set=images, k=k, method=OURS)
    ]


def stocks() -> list[float]:
    """Shares of the time of ten runs of hmmlearn."""
    return [ratio("Q6", "seconds", OURS, "hmmlearn x10", k=k) for k in kinds("Q6", "k")]


def window_means(method: str) -> float:
    """Accuracy on motions over all windows of neighbouring frames."""
    windows = [window for window in kinds("Q7", "window") if window not in ("raw", "chosen")]
    return statistics.fmean(v for window in windows for v in values("Q7", "accuracy", window=window, method=method))


def chains(method: str, of: str = "likelihood") -> list[float]:
    return [mean("Q8-hmm", of, method=method, chain=chain) for chain in kinds("Q8-hmm", "chain")]


def warned() -> str:
    """In how many fits with a library that lacks spectra this is told."""
    told = [value for lacking in (1, 2) for value in values("Q3-lacking", "told", lacking=lacking)]
    return f"{sum(told):.0f} of {len(told)}"

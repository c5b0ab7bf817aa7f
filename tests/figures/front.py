"""What the README and the pages that are of no single model say."""

import statistics
from collections.abc import Iterator

import numpy as np

from tests.figures.results import came_out, document, kinds, mean, median, part, ratio, values
from tests.figures.shared import (
    OURS,
    best_other,
    chains,
    inertia_on_images,
    stocks,
    thousands,
    times_on_images,
    window_means,
)


def readme() -> Iterator[str]:
    yield f"{mean('Q1-regimes', 'recall', method=OURS):.2f} of the planted rays found, the best of eight baselines {best_other('Q1-regimes'):.2f}."
    small = mean("Q1-regimes-small", "recall", method=OURS)
    yield f"With 300 x 500 and k = 20: {small:.2f} against {best_other('Q1-regimes-small'):.2f}."
    wall = [ratio("S1", "seconds", "NMF.fit", "sum", storage=storage) for storage in ("default", "uncompressed")]
    yield f"takes {wall[0]:.1f} times as long as its sum ({wall[1]:.1f} times where the chunks are not compressed)"
    two = [ratio("S5", "seconds", "1 worker", "2 workers", n=n) for n in (10**6, 5 * 10**6)]
    yield f"are {two[0]:.1f} times as fast as one on a million rows, {two[1]:.1f} times on five million."
    yield f"whose memory rose by {came_out('S6-soak', 'worker 2')[0]:.0f} MiB"
    yield f"a fit takes {part(ratio('S2', 'cpu', 'NMF.fit', 'spa'))} of the CPU time of successive projection"
    yield f"Topics of a million documents cost {came_out('S8', '<= 12 times')[0]:.0f} times the sum of their non-zeros."
    speed = {model: came_out("S9", f"{model}: ")[0] for model in kinds("S9", "model")}
    lda, gibbs = speed["LatentDirichletAllocation"], speed["LatentDirichletAllocation (as Gibbs)"]
    yield (
        f"topics {lda:.0f} (scikit-learn) and {gibbs:.0f} (tomotopy), Kalman filters {speed['KalmanFilter']:.0f} (pykalman), "
        f"subspace clustering {speed['SubspaceClustering']:.0f} (spectral), hidden Markov models {speed['GaussianHMM']:.1f} "
        f"(hmmlearn), k-means {speed['GaussianMixture (as k-means)']:.1f} (ten starts), Gaussian mixtures {speed['GaussianMixture']:.1f}."
    )
    batches = ratio("S9", "cpu", OURS, "scikit-learn MiniBatchNMF", model="NMF (as mini-batches)")
    left = [mean("S9", "loss", model="NMF", method=name) for name in (OURS, "scikit-learn NMF")]
    yield (
        f'Factorizations of blends (`basis="free"`) {speed["NMF"]:.0f}, with {part(100 * left[0], 3)} % of the squares left instead of {part(100 * left[1], 3)} %; '
        f"scikit-learn's mini-batches are {batches:.1f} times faster than the default basis, and diverged."
    )
    rays = [
        mean("Q12-rays", "angle", method=name) for name in ("dask_dca rays", "dask_dca rows", "vca", "scikit-learn")
    ]
    yield (
        f"Rays that no row is on: {rays[0]:.1f} degrees from the truth on the mean over {len(kinds('Q12-rays', 'share')) * 8} settings, anchors {rays[1]:.1f}, "
        f"vertex component analysis {rays[2]:.1f}, scikit-learn's NMF {rays[3]:.1f}."
    )
    yield from readme_of_models()


def readme_of_models() -> Iterator[str]:
    rand = {
        name: [mean("Q4b", "rand", mixture=m, method=name) for m in kinds("Q4b", "mixture")]
        for name in kinds("Q4b", "method")
    }
    ours, truth = rand[OURS], rand["em truth"]
    peers = max(max(rand[name]) for name in ("em x10", "em ++ x10", "kmeans x10"))
    agreement = min(min(values("Q5-seeds", "agreement", set=m, method=OURS)) for m in kinds("Q4b", "mixture"))
    yield (
        f"adjusted Rand {part(min(ours))} to {part(max(ours))} from one fit, EM from the true parameters {part(min(truth))} to "
        f"{part(max(truth))}, scikit-learn with ten starts at most {part(peers)}; ten seeds give the same partition ({part(agreement, 3)} between any two)."
    )
    large, small = times_on_images()
    yield (
        f"within {part(100 * (max(inertia_on_images()) - 1), 1)} %, in {part(min(large))} to {part(max(large))} of its time from 1,440 rows up, "
        f"where a half was aimed at; on fewer rows in {part(min(small))} to {max(small):.1f} of it."
    )
    case = {"case": "4 x 20, n 1e3"}
    yield (
        f"{part(mean('Q8-lds', 'excess', method=OURS, **case), 4)} more one-step error than the true system, pykalman's EM from N4SID's start "
        f"{part(mean('Q8-lds', 'excess', method='pykalman_n4sid', **case), 4)}; {came_out('Q8-lds', '>= 10 times')[0]:.0f} times faster than that EM (median)."
    )
    yield (
        f"{part(window_means(OURS))} of the test frames of six motion-capture recordings named right, hmmlearn {part(window_means('hmmlearn'))}, "
        f"k-means {part(window_means('kmeans'))}; the best basin of a likelihood with many in 10 of 10 draws, random starts 3 of 10."
    )
    assert came_out("Q8-basin", "the best basin") == [10, 10, 3, 10]
    yield f"and {part(-came_out('Q6', 'likelihood')[0], 3)} per frame below with ten, in {part(min(stocks()))} to {part(max(stocks()))} of their time."
    yield from readme_of_topics()


def readme_of_topics() -> Iterator[str]:
    found = {
        name: [mean("Q9", "perplexity", method=name, corpus=c, k=k) for c in ("ap", "nips") for k in (10, 20, 50, 100)]
        for name in (OURS, "tomotopy 1000")
    }
    lost = sum(ours > peer for ours, peer in zip(found[OURS], found["tomotopy 1000"], strict=True))
    assert lost == 2
    share = came_out("Q9", "<= 1/4 of tomotopy")[0]
    yield (
        f"tomotopy in six of eight cases on AP and NIPS (AP with twenty topics: {thousands(found[OURS][1])} against {thousands(found['tomotopy 1000'][1])}; lost "
        f"on NIPS with fifty and a hundred: {thousands(found[OURS][7])} against {thousands(found['tomotopy 1000'][7])}), in {part(share)} of the time or less;"
    )
    lost, settings = came_out("Q9-planted", "the default's L1 error is at or below that of tomotopy 200")[:2]
    yield f"nearer to the truth than 200 sweeps in {settings - lost:.0f} of {settings:.0f} settings"
    nips = {
        name: [mean("Q9", "npmi", method=name, corpus="nips", k=k) for k in (20, 50, 100)]
        for name in (OURS, "tomotopy 200", "tomotopy 1000")
    }
    peers = nips["tomotopy 200"] + nips["tomotopy 1000"]
    assert min(nips[OURS]) > max(peers)
    yield f"(NPMI {part(min(nips[OURS]))} to {part(max(nips[OURS]))} against {part(min(peers))} to {part(max(peers))} from twenty topics up)"
    yield f"a fit on 300 x 500 takes {median('S3', 'cpu_ms', method='NMF.fit', k=10):.0f} ms of CPU, not 3."


def choosing() -> Iterator[str]:
    ten = median("Q8-hmm", "seconds", chain="k=6 p=20 sep 2.5 n=1e3", method="hmmlearn x10")
    yield f"(hmmlearn on 1,000 frames of six states: {ten:.0f} s)"
    ours, spa = (median("S3", "cpu_ms", k=10, method=name) for name in ("NMF.fit", "spa"))
    yield f"takes {ours:.0f} ms of CPU here, successive projection {part(spa, 1)} (k = 10)."


def method() -> Iterator[str]:
    def row(start: str, identity: str, value: str, digits: int, **where: object) -> str:
        paper = "paper" if identity == "Q9" else "dca_paper"
        pair = (mean(identity, value, method=name, **where) for name in (OURS, paper))
        return f"| {start} | " + " | ".join(part(v, digits) for v in pair) + " |"

    yield row(
        "NMF | share of the rays found, twelve regimes, 10,000 x 100, k = 10 (Q1-regimes)", "Q1-regimes", "recall", 2
    )
    yield row(
        "Gaussian mixture | clustering accuracy, the paper's protocol, variance 2 to 5 (Q4-line)",
        "Q4-line",
        "accuracy",
        3,
    )
    yield row("Hidden Markov model | accuracy on motions, 12 channels (Q7)", "Q7", "accuracy", 2, window="raw")
    cases = kinds("Q8-lds", "case")
    pair = [
        statistics.fmean(mean("Q8-lds", "excess", method=name, case=case) for case in cases)
        for name in (OURS, "dca_paper")
    ]
    yield f"| Kalman filter | excess one-step error over the true system (Q8-lds) | {part(pair[0], 4)} | {pair[1]:.4f} |"
    yield row("Topics | held-out perplexity, AP, k = 20 (Q9)", "Q9", "perplexity", 0, corpus="ap", k=20)
    without, paper = (
        mean("Q9", "perplexity", corpus="ap", k=20, method=name) for name in ("dask_dca, 0 passes", "paper")
    )
    yield f"| the same without passes of EM | | {without:.0f} | {paper:.0f} |"
    cone = {"span": 90, "noise": 0.5}
    ours, paper = (mean("Q10-common", "accuracy", method=name, **cone) for name in (OURS, "dca_paper"))
    yield f"(span 90, noise .5): accuracy {part(ours, 3)} against {part(paper)}"
    single, ten, ours = (statistics.fmean(chains(name)) for name in ("hmmlearn", "hmmlearn x10", OURS))
    yield f"a single run of hmmlearn {part(single, 3)}, the best of ten {part(ten, 3)}, anchors with splits and mergers {part(ours, 3)}."
    alone, ours, gibbs = (
        mean("Q9-planted", "error", method=name) for name in ("dask_dca, 0 passes", OURS, "tomotopy 200")
    )
    yield f"anchors alone (`max_iter=0`) {part(alone, 3)}, with five passes {part(ours, 3)}, 200 sweeps of tomotopy from a random start {part(gibbs, 3)}."

    def lost(model: str, step: str) -> str:
        return part(round(mean("Q-ablation", "lost", model=model, method=step), 3) + 0.0, 3)

    moves, means = lost("mixture", "split and merge"), lost("mixture", "anchors (k-means++ alone)")
    yield f"Gaussian mixtures, adjusted Rand index: without split and merge {moves}; with a k-means++ start in place of anchors {means}."
    words, steps = lost("lda", "anchors (random words)"), lost("lda", "EM passes")
    yield f"Topics, L1 error: with random words for anchors {words}; without passes of EM {steps}."
    votes, mix = lost("nmf", "selection by reach (most votes)"), lost("nmf", "whitened and isotropic directions")
    yield f"NMF, share of the anchors: with the k rows of most votes {votes}; with row-space directions alone {mix}."
    for mixture in kinds("Q4b", "mixture"):
        start, end = (mean("Q4b", "rand", mixture=mixture, method=name) for name in ("dask_dca start", OURS))
        assert abs(start - end) < 5e-4, "update docs/method.md: the passes over all rows"


def scale() -> Iterator[str]:
    fits = {
        "NMF": "400,000 x 200",
        "SubspaceClustering": "40,000 x 200",
        "GaussianMixture": "1,000,000 x 20",
        "GaussianHMM": "300,000 x 20",
        "KalmanFilter": "300,000 x 20",
        "LatentDirichletAllocation": "100,000 documents",
    }
    parts = ("reading", "exact sums", "geometry", "kernels", "passes", "models")
    for name, size in fits.items():
        shares = [mean("profile", "share", model=name, part=of) for of in parts]
        cells = [part(share) if share >= 0.005 else "-" for share in shares]
        yield f"| {name}, {size} | {' | '.join(cells)} | {sum(values('profile', 'seconds', model=name)):.1f} |"
    rose = [came_out("S6-soak", of)[0] for of in ("worker 1", "worker 2", "driver")]
    yield f"rose by {rose[0]:.0f} and {rose[1]:.0f} MiB over what it was before the fit, the driver's by {rose[2]:.0f}; nothing spilled"
    assert came_out("S6-soak", "all rays")[0] < 0.1
    for storage, of in (("uncompressed", "uncompressed"), ("default", "decoded data")):
        yield f"{of} | {median('S1', 'cpu', method='sum', storage=storage) / 2:.1f} s |"
    two = [ratio("S5", "seconds", "1 worker", "2 workers", n=n) for n in (10**6, 5 * 10**6)]
    yield f"were {two[0]:.2f} times as fast on 1,000,000 x 100, and {two[1]:.2f} times on 5,000,000 x 100"
    grown = came_out("S4", "at most k log k")
    yield f"From 5 to 200 anchors the cost grew {grown[2]:.0f} times, where k log k grows {grown[3]:.0f} times."
    yield from formula()


def formula() -> Iterator[str]:
    """The cost of a fit by the page's constants, against S4."""
    fixed = {50: 0.05, 250: 0.2, 1000: 2.9, 3000: 8.0, 10_000: 22.0}
    yield "| fixed part, k = 10: p = 50, 250, 1,000, 3,000, 10,000 | 0.05, 0.2, 2.9, 8, 22 s |"
    yield "0.9 microseconds |"
    row = [500 * 1.3e-3, 6e-5 * (600 + 128) * 19, 0.9]
    yield f"a row costs {row[0]:.2f} + {row[1]:.2f} + {row[2]} = {sum(row):.1f} microseconds, which is {sum(row) / 2:.1f} s for each GB"
    bytes_ = [16 * (10 * k * np.log(k) + 128) * (k + 1) for k in (20, 50, 200)]
    yield f"{bytes_[0] / 1e6:.2f} MB for k = 20, {bytes_[1] / 1e6:.0f} MB for k = 50, and {bytes_[2] / 1e6:.0f} MB for k = 200"
    yield "| a, an entry in single precision | 1.3 ns | | b, a row on a direction, for each dimension | 0.06 ns |"
    shares = {}
    for case in document("S4")["records"]:
        n, p, k = case["n"], case["p"], case["k"]
        if case["method"] == "NMF.fit" and p in fixed:
            took = case["cpu"] - mean("S4", "cpu", case=case["case"], method="sum")
            said = fixed[p] + n * (1.3e-9 * p + 6e-11 * (10 * k * np.log(k) + 128) * (k - 1) + 9e-7)
            shares[k, p, n] = said / took
            if (n, p, k) in ((10**5, 50, 10), (10**6, 50, 10), (10**7, 50, 10)):
                yield f"| {n:,} x {p}, {k} | {said:.{2 if n == 10**5 else 1}f} s | {took:.{2 if n == 10**5 else 1}f} s |"
            if k == 200:
                yield f"| {n:,} x {p}, {k} | {said:.0f} s | {took:.1f} s |"
    few = [share for (k, _, _), share in shares.items() if k <= 50]
    yield f"the formula gives {part(min(shares.values()))} to {max(shares.values()):.2f} of what was measured, and {part(min(few))} to {max(few):.2f} up to 50 anchors."


def running() -> Iterator[str]:
    yield f"took {came_out('Q8-hmm-scale', 'memory')[1]:.0f} MB more than an idle worker"
    for name, setting in (("Dask's default", "Dask's default"), ("with both variables", "trim 256 MiB, mmap 32 MiB")):
        cells = [
            f"{mean('S12', of, setting=setting, method=m):.1f}" for of in ("cpu", "seconds") for m in ("sum", "NMF.fit")
        ]
        yield f"| {name} | {' | '.join(cells)} | {mean('S12', 'peak', setting=setting, method='NMF.fit'):.0f} MB |"


def faults() -> Iterator[str]:
    def count(name: str, *of: str) -> int:
        return int(sum(mean("soak", "value", counted=name, fault=fault) for fault in of or kinds("soak", "fault")))

    killed = count("resumed to the same bits", "driver killed")
    errors = count("clear errors")
    yield (
        f"In {count('runs')} runs, in which {count('faults in time')} faults came while the fit ran, {count('same bits at once')} fits ended with the "
        f"same bits all the same, {errors} with a clear error and {killed} with their process; those {errors + killed} went on to the same bits"
    )
    assert count("answers that differ") == count("states lost") == count("unclear or hung") == 0

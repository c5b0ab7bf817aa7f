"""What the README and the pages that are of no single model say."""

import statistics
from collections.abc import Iterator

import numpy as np

from tests.figures.results import came_out, document, kinds, mean, median, part, ratio, values
from tests.figures.shared import (
    OURS,
    best_other,
    chains,
    warned,
)


def readme() -> Iterator[str]:
    """The rows of the table: what is measured, and what came out."""
    yield from (f"| {what} | {' '.join(came.split())} |" for what, came in [*_found(), *_learnt(), *_costs()])


def _found() -> Iterator[tuple[str, str]]:
    small = mean("Q1-regimes-small", "recall", method=OURS)
    yield (
        "Pure rows, twelve regimes, noise 0 to 1",
        (
            f"{part(mean('Q1-regimes', 'recall', method=OURS))} of the planted rays found, the best of eight baselines {part(best_other('Q1-regimes'))}; "
            f"on 300 x 500 {part(small)} and {part(best_other('Q1-regimes-small'))}"
        ),
    )
    left = [mean("S9", "loss", model="NMF", method=name) for name in (OURS, "scikit-learn NMF")]
    rays = [
        mean("Q12-rays", "angle", method=name)
        for name in ("dask_dca rays", "dask_dca rows", "vca", "scikit-learn", "sisal", "sisal, .1")
    ]
    yield (
        "No pure rows",
        (
            f'residual of `basis="free"` {part(100 * left[0], 3)} % of the sum of squares, scikit-learn {part(100 * left[1], 3)} %; `basis="rays"` is {rays[0]:.1f} degrees from '
            f"the true rays, SISAL {rays[4]:.1f} or {rays[5]:.1f}, vertex component analysis {rays[2]:.1f}, scikit-learn {rays[3]:.1f}, anchors {rays[1]:.1f}"
        ),
    )
    rare = [values("Q15-rare", "rare", method=name) for name in (OURS, "one divide", "all rows sampled")]
    yield (
        "A material in 0.03 to 1 % of the rows, noise 0.01 to 1",
        f"found in {sum(rare[0]):.0f} of {len(rare[0])} fits, {sum(rare[1]):.0f} without the second divide pass, {sum(rare[2]):.0f} from a subspace of all rows",
    )
    named = [mean("Q3-library", "named", method=name) for name in (OURS, "nnls_pruned", "clsunsal", "nearest")]
    yield (
        "Spectra identified in a library of 498",
        (
            f"{part(named[0])} of them, sparse regression {part(named[2])}, least squares {part(named[1])}, nearest spectra {part(named[3])}; "
            f"{warned()} fits with an incomplete library warn of it"
        ),
    )


def _learnt() -> Iterator[tuple[str, str]]:
    rand = {name: mean("Q4b", "rand", method=name) for name in (OURS, "em truth", "em ++ x10")}
    yield (
        "Mixtures of unequal components, k = 5 to 50",
        f"adjusted Rand {part(rand[OURS], 3)}, EM from the true parameters {part(rand['em truth'], 3)}, the best of ten starts {part(rand['em ++ x10'], 3)}",
    )
    likelihood = {name: statistics.fmean(chains(name)) for name in (OURS, "hmmlearn", "hmmlearn x10")}
    yield (
        "Hidden Markov models, nine kinds",
        (
            f"held-out log likelihood per frame minus that of the true model: {part(likelihood[OURS], 3)}; hmmlearn with its default of ten steps {part(likelihood['hmmlearn'], 3)}, "
            f"with the best of ten starts of 100 steps {part(likelihood['hmmlearn x10'], 3)}"
        ),
    )
    excess = {
        name: statistics.geometric_mean(values("Q8-lds-hidden", "excess", n=1000, method=name))
        for name in (OURS, "n4sid", "n4sid_em", "em_from_truth")
    }
    yield (
        "Linear systems, sixteen kinds, 1,000 frames",
        (
            f"one-step error {part(100 * excess[OURS], 1)} % above the true system's, N4SID {100 * excess['n4sid']:.1f} %, EM from there "
            f"{100 * excess['n4sid_em']:.1f} %, EM from the truth {part(100 * excess['em_from_truth'], 1)} %"
        ),
    )
    yield "Topics of AP and NIPS, k = 10 to 100", _topics()
    cone = {"span": 90, "noise": 0.5}
    others = {name: values("Q10-common", "accuracy", method=name, **cone) for name in kinds("Q10-common", "method")}
    peers = [
        statistics.fmean(found) for name, found in others.items() if found and not name.startswith(("dask_dca", "dca_"))
    ]
    yield (
        "Cones with a common centre, noise 0.5",
        f"{part(mean('Q10-common', 'accuracy', method=OURS, **cone))} of the rows clustered correctly, the best of {len(peers)} others {part(max(peers))}",
    )


def _topics() -> str:
    settings = [(c, k) for c in ("ap", "nips") for k in (10, 20, 50, 100)]
    found = {
        value: {
            name: [mean("Q9", value, method=name, corpus=c, k=k) for c, k in settings]
            for name in (OURS, "tomotopy 1000")
        }
        for value in ("perplexity", "npmi")
    }
    better = [
        sum(a < b for a, b in zip(*found["perplexity"].values(), strict=True)),
        sum(a > b for a, b in zip(*found["npmi"].values(), strict=True)),
    ]
    return f"held-out perplexity below that of 1,000 Gibbs sweeps in {better[0]} of 8 settings, coherence above it in {better[1]}"


def _costs() -> Iterator[tuple[str, str]]:
    speed = {model: came_out("S9", f"{model}: ")[0] for model in kinds("S9", "model")}
    yield (
        "CPU time of libraries whose quality is matched, in memory, one thread, one run",
        (
            f"scikit-learn's NMF {speed['NMF']:.0f} times ours, in mini-batches {speed['NMF (as mini-batches)']:.0f}, its k-means of ten starts {speed['GaussianMixture (as k-means)']:.0f}, mixtures {speed['GaussianMixture']:.0f}, "
            f"topics {speed['LatentDirichletAllocation']:.0f} (tomotopy {speed['LatentDirichletAllocation (as Gibbs)']:.0f}), spectral clustering {speed['SubspaceClustering']:.0f}; "
            f"hmmlearn {speed['GaussianHMM']:.0f}; ten steps of EM in pykalman {speed['KalmanFilter']:.0f}"
        ),
    )
    inertia = {name: mean("S18", "inertia", method=name) for name in kinds("S18", "method")}
    yield (
        "Clusters of 2,000,000 rows on two workers",
        (
            f"dask-ml's KMeans takes {ratio('S18', 'cpu', 'dask-ml KMeans', OURS):.1f} times our CPU time, and leaves "
            f"{100 * (inertia['dask-ml KMeans'] / inertia[OURS] - 1):.1f} % more inertia"
        ),
    )
    wall = [ratio("S1", "seconds", "NMF.fit", "sum", storage=storage) for storage in ("default", "uncompressed")]
    yield (
        "A zarr array of 2 GB on two workers",
        f"a fit takes {wall[0]:.1f} times as long as summing the array ({wall[1]:.1f} without compression); a fit of 40 GB raises a worker's memory by {max(came_out('S6-soak', f'worker {i}')[0] for i in (1, 2)):.0f} MiB",
    )
    spectra = [mean("Q3-usgs", "angle", snr=20, method=name) for name in (OURS, "vca")]
    yield (
        "Where it loses",
        (
            f"RESULTS.md begins with the requirements that are not met. Pure rows of least norm at noise 0.3 and above, where successive projection finds more; "
            f"spectra at 20 dB ({spectra[0]:.1f} degrees, vertex component analysis {spectra[1]:.1f}); "
            f"300 x 500 ({median('S3', 'cpu_ms', method='NMF.fit', k=10):.0f} ms) and 100,000 x 200 in memory ({part(ratio('S2', 'cpu', 'NMF.fit', 'spa'))} of the time of successive projection)"
        ),
    )
    yield "Not compared", "Spark MLlib and GPUs; more than two processors are simulated"


def choosing() -> Iterator[str]:
    ten = median("Q8-hmm", "seconds", chain="k=6 p=20 sep 2.5 n=1e3", method="hmmlearn x10")
    yield f"(hmmlearn on 1,000 frames of six states: {ten:.0f} s)"
    ours, spa = (median("S3", "cpu_ms", k=10, method=name) for name in ("NMF.fit", "spa"))
    yield f"takes {ours:.0f} ms of CPU here, successive projection {part(spa, 1)} (k = 10)."
    yield from very_rare()


def very_rare() -> Iterator[str]:
    often = {share: mean("Q15-clusters", "rare", share=share, method=OURS) for share in (0.0003, 0.001)}
    peers = [v for share in often for v in values("Q15-clusters", "rare", share=share, method="five starts")]
    assert not any([*peers, often[0.0003]]), "update docs/choosing-a-model.md"
    yield f"a cluster of 0.1 % of 200,000 rows in {part(often[0.001])} of the fits and of 0.03 % in none"
    topics = [values("Q15-topics", "rare", share=share, method=OURS) for share in (0.01, 0.003)]
    assert all(topics[0]), "update docs/choosing-a-model.md"
    assert not any(topics[1]), "update docs/choosing-a-model.md"
    peers = [v for share in (0.01, 0.003) for v in values("Q15-topics", "rare", share=share, method="scikit-learn")]
    assert not any(peers), "update docs/choosing-a-model.md"
    yield "a topic of 1 % of 10,000 documents in all, of 0.3 % in none"


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
    yield f"(span 90, noise 0.5): accuracy {part(ours, 3)} against {part(paper)}"
    single, ten, ours = (statistics.fmean(chains(name)) for name in ("hmmlearn", "hmmlearn x10", OURS))
    yield f"a single run of hmmlearn {part(single, 3)}, the best of ten {part(ten, 3)}, anchors with splits and mergers {part(ours, 3)}."
    alone, ours, gibbs = (
        mean("Q9-planted", "error", method=name) for name in ("dask_dca, 0 passes", OURS, "tomotopy 200")
    )
    yield f"anchors alone (`max_iter=0`) {part(alone, 3)}, with steps of EM {part(ours, 3)}, 200 sweeps of tomotopy from a random start {part(gibbs, 3)}."
    for model, steps in ABLATED.items():
        for step, words in steps.items():
            yield ablated(model, step, words)


ABLATED = {
    "mixture": {
        "anchors (a draw of k-means++)": "Gaussian mixture | anchors: a draw of k-means++ instead",
        "anchors and partition (random labels)": "| anchors and the partition from them: random labels instead",
        "split and merge": "| splits and merges",
        "choice of pulls": "| the choice of shrinkage to common covariances",
        "breathing": "| breathing",
        "isolated rows set aside": "| isolated rows set aside",
        "full covariances": "| full covariances",
    },
    "mixture, many rows": {"passes over all rows": "the same, 100,000 rows | passes over all rows"},
    "hmm": {
        "anchors (a draw of k-means++)": "Hidden Markov model | anchors: a draw of k-means++ instead",
        "all anchors (random labels)": "| all anchored starts: random labels instead",
        "starts by lifted features": "| starts by lifted features",
        "split and merge": "| splits and mergers",
        "steps on the sample": "| steps on the sample",
    },
    "hmm, many frames": {"passes over all frames": "the same, 100,000 frames | passes over all frames"},
    "kalman": {
        "depths to choose from (the least)": "Kalman filter | the choice among depths: the least instead",
        "a second start, whose innovations are states": "| a second start, whose innovations are states",
        "EM passes": "| passes of EM",
        "extrapolation": "| extrapolation",
        "correlated noise": "| correlations of the noise",
    },
    "lda": {
        "anchors (random words)": "Topics | anchors: random words instead",
        "divide (successive projection on all words)": "| votes: successive projection on all words instead",
        "vertices from groups of words": "| vertices from groups of words",
        "EM passes": "| passes of EM",
    },
    "lda, text": {
        "anchors (random words)": "the same, articles of AP | anchors: random words instead",
        "a start in two levels": "| a start in two levels",
        "splits and merges": "| splits and merges",
        "EM passes": "| passes of EM",
    },
    "subspace": {
        "sweeps": "Subspace clustering | sweeps",
        "graphs in which far neighbours fade": "| graphs in which far neighbours fade",
        "choice of landmarks (random rows)": "| the choice of landmarks: random rows instead",
    },
    "nmf": {
        "selection by reach (most votes)": "NMF, `find_anchors` | selection by reach: the k rows of most votes instead",
        "weights of rows": "| weights of rows",
        "weights of features": "| weights of features",
        "shrinkage of the subspace": "| shrinkage of the subspace",
        "XRAY on few noisy rows": "| XRAY on few noisy rows",
        "whitened and isotropic directions": "| directions other than those of the row space",
        "swaps by volume": "| swaps by volume",
    },
}


def ablated(model: str, step: str, words: str) -> str:
    """A row of the table: what is lost without a step, and what the fit costs without it."""
    lost, error, cpu = (mean("Q-ablation", of, model=model, method=step) for of in ("lost", "error", "cpu"))
    return f"{words} | {part(round(lost, 4) + 0.0, 4)} ± {part(error, 4)} | {part(cpu)} |"


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
    rose = [came_out("S6-holes", of)[0] for of in ("worker 1", "worker 2", "driver")]
    size = f"{values('S6-holes', 'gb')[0]:g} GB of the same with a tenth of the entries missing"
    yield f"{size} raised the workers' memory by {rose[0]:.0f} and {rose[1]:.0f} MiB, the driver's by {rose[2]:.0f}, which holds"
    yield f"took {came_out('S6-holes', 'the fit ends')[-1]:.0f} CPU seconds (S6-holes)"
    for storage, of in (("uncompressed", "uncompressed"), ("default", "decoded data")):
        yield f"{of} | {median('S1', 'cpu', method='sum', storage=storage) / 2:.1f} s |"
    two = [ratio("S5", "seconds", "1 worker", "2 workers", n=n) for n in (10**6, 5 * 10**6)]
    yield f"were {two[0]:.2f} times as fast on 1,000,000 x 100, and {two[1]:.2f} times on 5,000,000 x 100"
    yield from many_workers()
    grown = came_out("S4", "at most k log k")
    yield f"From 5 to 200 anchors the cost grew {grown[2]:.0f} times, where k log k grows {grown[3]:.0f} times."
    yield from formula()
    yield from left_to_the_driver()


def many_workers() -> Iterator[str]:
    """What S16 simulated, and how far real runs were from it."""
    records = document("S16")["records"]
    off = {n: [r["measured"] / r["seconds"] - 1 for r in records if r["workers"] == n] for n in (1, 2, 4)}
    few = [100 * one for one in (*off[1], *off[2])]
    yield f"took {min(few):.0f} to {max(few):.0f} % longer than simulated on one and two workers, and up to {100 * max(off[4]):.0f} % longer on four"
    workers = (10, 30, 100, 300, 1000, 3000)
    yield f"| data | {' | '.join(f'{n:,} workers' for n in workers)} |"
    for data, block in (("1 TB", "64 MB"), ("100 TB", "512 MB")):
        at = {r["workers"]: r for r in records if r["data"] == data}
        seconds = [lasting(at[n]["seconds"]) for n in workers]
        yield f"| {data} in blocks of {block} | {' | '.join(seconds)} |"
        busy = [f"{100 * at[n]['scheduler']:.0f} %" for n in workers]
        yield f"| its scheduler is busy | {' | '.join(busy)} |"
    threads = mean("S16", "threads", data="1 TB", workers=100)
    yield f"(threads busy: {100 * threads:.0f} % of 1 TB)"
    yield f"512 MB keep it {100 * mean('S16', 'scheduler', data='100 TB', workers=3000):.0f} % busy with 3,000 workers"


def lasting(seconds: float) -> str:
    """Seconds, minutes or hours."""
    unit, size = next((name, size) for name, size in (("h", 3600), ("min", 60), ("s", 1)) if seconds >= 2 * size)
    return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"


def left_to_the_driver() -> Iterator[str]:
    fits = {
        "GaussianMixture": "GaussianMixture(10), 1,000,000 x 50",
        "GaussianMixture, tied-spherical": 'the same as k-means ("tied-spherical")',
        "GaussianHMM": "GaussianHMM(6), 1,000,000 x 50",
        "KalmanFilter": "KalmanFilter(6), 1,000,000 x 50",
        "LatentDirichletAllocation": "LatentDirichletAllocation(20), 200,000 documents",
    }
    for method, fit in fits.items():
        own, driver, share, scheduler, cpu = (
            mean("S14", of, method=method) for of in ("own", "driver", "share", "scheduler", "cpu")
        )
        rest = f"{100 * share:.1f} % | {scheduler:.1f} | {cpu - driver - scheduler:.1f}"
        yield f"| {fit} | {part(own)} | {part(driver)} | {rest} |"


def formula() -> Iterator[str]:
    """The cost of a fit by the page's constants, against S4."""
    fixed = {50: 0.03, 250: 0.07, 1000: 1.2, 3000: 3.4, 10_000: 12.0}
    yield "| fixed part, k = 10: p = 50, 250, 1,000, 3,000, 10,000 | 0.03, 0.07, 1.2, 3.4, 12 s |"
    yield "0.18 microseconds |"
    row = [500 * 1.3e-3, 1.2e-5 * (600 + 128) * 19, 0.18]
    yield f"a row costs {row[0]:.2f} + {row[1]:.2f} + {row[2]} = {sum(row):.1f} microseconds, which is {sum(row) / 2:.1f} s for each GB"
    bytes_ = [16 * (10 * k * np.log(k) + 128) * (k + 1) for k in (20, 50, 200)]
    yield f"{bytes_[0] / 1e6:.2f} MB for k = 20, {bytes_[1] / 1e6:.0f} MB for k = 50, and {bytes_[2] / 1e6:.0f} MB for k = 200"
    yield "| a, an entry in single precision | 1.3 ns | | b, a row on a direction, for each dimension | 0.012 ns |"
    shares = {}
    for case in document("S4")["records"]:
        n, p, k = case["n"], case["p"], case["k"]
        if case["method"] == "NMF.fit" and p in fixed:
            took = case["cpu"] - mean("S4", "cpu", case=case["case"], method="sum")
            said = fixed[p] + n * (1.3e-9 * p + 1.2e-11 * (10 * k * np.log(k) + 128) * (k - 1) + 1.8e-7)
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
    yield from (
        f"fits all models {count('runs')} times, each with a fault at a random moment",
        (
            f"{count('faults in time')} faults came while the fit ran: {count('same bits at once')} fits ended with bit-identical results, "
            f"{errors} with a clear error and {killed} with their process; those {errors + killed} went on to bit-identical results"
        ),
    )
    assert count("answers that differ") == count("states lost") == count("unclear or hung") == 0
    total = {
        name: int(sum(mean("streams", "value", counted=name, model=model) for model in kinds("streams", "model")))
        for name in kinds("streams", "counted")
    }
    within = total["within a batch"] + total["while saving"]
    yield f"get SIGKILL {total['kills']} times in all, {within} of these within a batch or while the model is saved"
    assert total["models that differ"] == 0
    assert total["batches"] == 200 * len(kinds("streams", "model"))

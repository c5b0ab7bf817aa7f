"""What the pages of models say."""

import statistics
from collections.abc import Iterator

import numpy as np

from tests.figures.results import came_out, document, kinds, mean, median, part, ratio, rough, values
from tests.figures.shared import (
    OURS,
    best_other,
    chains,
    inertia_on_images,
    stocks,
    times_on_images,
    warned,
    window_means,
)


def nmf() -> Iterator[str]:
    def row(start: str, identity: str, **where: object) -> str:
        pair = [mean(identity, "recall", method=name, **where) for name in (OURS, "dca_paper")]
        return f"| {start} | {part(pair[0])} | {part(pair[1])} | {part(best_other(identity, **where))}"

    yield row("300 x 500, uniform coefficients, k = 20, noise 1", "Q1", k=20, noise=1.0)
    yield row("the same, k = 10", "Q1", k=10, noise=1.0)
    yield row("twelve regimes, 10,000 x 100, k = 10, noise 0 to 1", "Q1-regimes")
    yield row("of these: outlier rows", "Q1-regimes", regime="outliers")
    yield row("of these: features of uneven noise", "Q1-regimes", regime="heteroscedastic")
    yield row("twelve regimes, 300 x 500, k = 20", "Q1-regimes-small")
    yield row("near-duplicates, 10,000 x 100, k = 20", "Q2", regime="near-duplicates", k=20)
    for start, holes in (
        ("half, at random", "random .5"),
        ("nine of ten, at random", "random .9"),
        ("three of ten sensors", "sensors .3"),
        ("half of the sensors", "sensors .5"),
        ("half, high values more often", "high values .5"),
    ):
        cells = [
            ", ".join(
                part(mean("Q12", name, holes=holes, method=method), digits)
                for name, digits in (("share", 2), ("error", 4))
            )
            for method in (OURS, "iterative_svd", "masked_nmf", "knn")
        ]
        yield f"| {start} | " + " | ".join(cells) + " |"
    uniform = [mean("Q1-regimes", "recall", regime="uniform", noise=0.3, method=name) for name in (OURS, "spa")]
    yield f"{part(uniform[0])} against {part(uniform[1])} at noise 0.3 in the regimes"
    reach = [part(mean("Q1-oracle", "recall", method=name)) for name in (OURS, "spa", "true rays", "true subspace")]
    yield f"the default finds {reach[0]}, successive projection {reach[1]}, and choosing for each true ray the row of its largest share {reach[2]}"
    yield f"With the true subspace the default finds {reach[3]}."
    minerals = [mean("Q3-usgs", "angle", snr=20, method=name) for name in ("vca", OURS)]
    yield f"({minerals[0]:.1f} against {minerals[1]:.1f} degrees)"
    for snr in (30, 40):
        angles = [mean("Q3-usgs", "angle", snr=snr, method=name) for name in kinds("Q3-usgs", "method")]
        assert mean("Q3-usgs", "angle", snr=snr, method=OURS) < min(angles) + 0.005, "update docs/models/nmf.md"
    known = {
        name: [mean("Q3-oracle", "angle", scene=scene, method=name) for scene in ("minerals, 20 dB", "samson")]
        for name in ("purest rows", "true subspace", "sums known", OURS)
    }
    yield f"The purest pixels themselves are {known['purest rows'][0]:.1f} degrees from the spectra"
    yield f"and with the true subspace the default is at {known['true subspace'][0]:.1f} (Q3-oracle)"
    peer = min(mean("Q3-oracle", "angle", scene="samson", method=name) for name in ("vca", "xray_max"))
    ours, sums = known[OURS][1], known["sums known"]
    yield f"{sums[0]:.1f} degrees, and {sums[1]:.1f} on Samson (default {ours:.1f}, best peer {peer:.1f})"
    wall = [ratio("S1", "seconds", "NMF.fit", "sum", storage=storage) for storage in ("default", "uncompressed")]
    yield f"takes {wall[0]:.1f} times as long as the sum of the array ({wall[1]:.1f} times where the chunks are not compressed)"
    yield f"it takes {part(ratio('S2', 'cpu', 'NMF.fit', 'spa'))} of the CPU time of successive projection."
    yield from nmf_bases()


def nmf_bases() -> Iterator[str]:
    for noise in kinds("Q12-rays", "noise"):
        names = ("dask_dca rays", "dask_dca rows", "vca", "sisal", "sisal, .1", "scikit-learn")
        pure = [mean("Q12-rays", "angle", noise=noise, share=1.0, method=name) for name in names]
        blends = [
            statistics.fmean(mean("Q12-rays", "angle", noise=noise, share=share, method=name) for share in (0.6, 0.8))
            for name in names
        ]
        cells = " | ".join(f"{a:.1f} / {b:.1f}" for a, b in zip(blends, pure, strict=True))
        yield f"| {part(noise, 3).rstrip('0')} | {cells} |"
    lost = document("Q12-rays")["checks"][0]["value"]
    assert lost.count("sisal, .1") == int(lost.split()[2]), "update docs/models/nmf.md"
    for share, noise, k in ((0.6, 0.02, 10), (1.0, 0.002, 20)):
        assert f"{share} {noise} {k} " in lost, "update docs/models/nmf.md"
        ours, peer = (
            mean("Q12-rays", "angle", share=share, noise=noise, k=k, method=name)
            for name in ("dask_dca rays", "sisal, .1")
        )
        assert ours - peer < 0.01, "update docs/models/nmf.md"
    yield f"with a tenth it is nearer than rays in {lost.split()[2]} of the {lost.split()[4].rstrip(':')} settings, by less than 0.01"
    for name in kinds("Q12-free", "set"):
        methods = ("dask_dca rows", "dask_dca free", "scikit-learn", "scikit-learn MiniBatchNMF")
        left = [values("Q12-free", "left", set=name, method=method) for method in methods]
        cells = " | ".join(part(min(found), 4) if found else "-" for found in left)
        yield f"| {name} | {cells} |"
    yield from auto()
    limbs = [values("Q12-free", "limbs", set="swimmer", method=method) for method in ("dask_dca free", "scikit-learn")]
    yield f"{limbs[0][0]} of the swimmer's 16 limbs are alone in a component (scikit-learn: {min(limbs[1])} or {max(limbs[1])})"


def auto() -> Iterator[str]:
    rows, rays = (values("Q12-auto", "angle", method=f"dask_dca {basis}") for basis in ("rows", "auto"))
    nearer, further = (sum(sign * (a - b) > 0.01 for a, b in zip(rows, rays, strict=True)) for sign in (1, -1))
    taken = sum(values("Q12-auto", "taken", method="dask_dca auto"))
    yield (
        f'{len(rows)} sets of data with pure rows and noise 0 to 1, `"auto"` chose rays in {taken:.0f} and was nearer to the true rays in {nearer}, '
        f"further in {further}: a mean of {statistics.fmean(rays):.1f} degrees from ray to component, rows {statistics.fmean(rows):.1f}."
    )
    yield f"cost {part(median('Q12-auto', 'cpu', method='dask_dca rows') / median('Q12-auto', 'cpu', method='dask_dca auto'))} of its CPU time"
    ours = ("dask_dca", "dca_paper", "dca_rays", "dca_auto")
    peers = [name for name in kinds("Q3-samson", "method") if name not in ours and not name.startswith("dca_s")]
    angles = {name: mean("Q3-samson", "angle", method=name) for name in ("dca_rays", *peers)}
    assert len(peers) - 1 == 10  # scikit-learn's with two settings
    yield f"On Samson rays are {angles['dca_rays']:.1f} degrees from the published spectra, the best of ten peers {min(angles[name] for name in peers):.1f}."


def mixture() -> Iterator[str]:
    yield from of_holes("mixture")
    names = {
        "default": OURS,
        "default, `max_iter=0`": "dask_dca start",
        '`method="paper"`': "dca_paper",
        "k-means, ten starts": "kmeans x10",
        "EM, ten starts": "em x10",
        "EM from the true parameters": "em truth",
    }
    for name, at in names.items():
        row = [part(mean("Q4-line", "accuracy", method=at, variance=v), 3) for v in (2.0, 3.0, 4.0, 5.0)]
        yield f"| {name} | " + " | ".join(row) + " |"
    for name, at in zip(
        (
            "k = 5, separation 2",
            "k = 10, separation 2.5",
            "k = 20, separation 3",
            "k = 20, separation 4, features of unequal scale",
            "k = 50, separation 5",
        ),
        kinds("Q4b", "mixture"),
        strict=True,
    ):
        row = [part(mean("Q4b", "rand", method=m, mixture=at), 3) for m in ("em truth", OURS, "em ++ x10", "em x10")]
        yield f"| {name} | " + " | ".join(row) + " |"
    for name in kinds("Q4-tails", "set"):
        row = [
            part(mean("Q4-tails", "rand", method=m, set=name), 3)
            for m in (OURS, "dask_dca normal", "em x10", "kmeans x10")
        ]
        risen = [mean("Q4-tails", "likelihood", method=m, set=name) for m in (OURS, "dask_dca normal", "em x10")]
        called = (
            name.replace("t ", "t, ")
            .replace(", k=", " degrees; k = ")
            .replace(" p=", ", p = ")
            .replace("skew degrees", "skew")
        )
        yield f"| {called} | {' | '.join(row)} | {risen[0] - risen[1]:.2f}, {risen[0] - risen[2]:.2f} |"
    planted = [r for r in document("Q4-auto")["records"] if "k=" in r["set"]]
    methods = (OURS, "dask_dca diag", "least BIC of em")
    times = [sum(r["method"] == m and r["excess"] == 0 for r in planted) for m in methods]
    yield f"On {len(planted) // 3} planted mixtures of four types the planted number is found {times[0]} times, by diagonal"
    yield f"covariances {times[1]} times, and by scikit-learn's mixtures of all four types {times[2]} times."
    inertia, (large, small) = inertia_on_images(), times_on_images()
    yield f"the inertia is {part(min(inertia))} to {max(inertia):.2f} of that of k-means with ten starts, in the mean of a set."
    yield f"The time is {part(min(large))} to {part(max(large))} of theirs from 1,440 rows up, and {part(min(small))} to {max(small):.1f} of it on fewer rows"


def markov() -> Iterator[str]:
    yield from of_holes("chain")
    columns = (OURS, "dca_paper", "hmmlearn", "spectral", "kmeans")
    for name, window in (("the 12 channels", "raw"), ("window chosen", "chosen")):
        yield f"| {name} | " + " | ".join(part(mean("Q7", "accuracy", method=m, window=window)) for m in columns) + " |"
    yield "| windows, mean | " + " | ".join(part(window_means(m)) for m in columns) + " |"
    yield f"A fit takes {ratio('Q7', 'milliseconds', OURS, 'hmmlearn'):.1f} times hmmlearn's time there (medians of all fits)."
    columns = (OURS, "hmmlearn", "hmmlearn x10")
    for k in (2, 6, 8, 10):
        yield f"| {k} | " + " | ".join(f"{mean('Q6', 'likelihood', method=m, k=k):.3f}" for m in columns) + " |"
    gain = {
        k: mean("Q6", "likelihood", method=OURS, k=k) - mean("Q6", "likelihood", method="hmmlearn x10", k=k)
        for k in kinds("Q6", "k")
    }
    assert max(abs(gain[k]) for k in (2, 4, 6, 8)) < 1.5e-3
    yield f"level with the best of the ten up to eight states, and {part(-gain[10], 3)} below it with ten, in {part(min(stocks()))} to {part(max(stocks()))} of their time"
    over = np.subtract(chains(OURS), chains("hmmlearn"))
    yield f"above a single run of hmmlearn in all nine, by {part(over.min(), 3)} to {part(over.max())} per frame"
    behind = np.subtract(chains("hmmlearn x10"), chains(OURS))
    slower = [  # the draw for which both ran in turn
        ratio("Q8-hmm", "seconds", "hmmlearn x10", OURS, seed=0, chain=chain) for chain in kinds("Q8-hmm", "chain")
    ]
    assert behind.max() < 5e-4
    yield f"more than 0.0005 below the best of ten runs, which take {min(slower):.0f} to {max(slower):.0f} times as long."
    best, draws, random, _ = came_out("Q8-basin", "the best basin")
    yield f"is found in {best:.0f} of {draws:.0f}, by random starts of Baum-Welch in {random:.0f} of {draws:.0f}."
    scale, memory = ratio("Q8-hmm-scale", "seconds", "GaussianHMM.fit", "sum"), came_out("Q8-hmm-scale", "memory")[1]
    yield f"{scale:.0f} times the time of the array's sum, {memory:.0f} MB above an idle worker."


def kalman() -> Iterator[str]:
    for name, case in (("independent", "4 x 20, n 1e3"), ("three common factors", "4 x 20 correlated, n 1e3")):
        pair = (median("Q8-lds", "excess", method=m, case=case) for m in (OURS, "dca_diag"))
        yield f"| {name} | " + " | ".join(part(v, 4) for v in pair) + " |"
        for share in (0.1, 0.3):
            pair = (mean("Q8-lds-missing", "excess", method=m, case=case, share=share) for m in (OURS, "dca_diag"))
            yield f"| {name} | {100 * share:.0f} % | " + " | ".join(part(v, 4) for v in pair) + " |"
    names = (OURS, "n4sid", "cva", "n4sid_em", "em_from_truth")
    for n in kinds("Q8-lds-hidden", "n"):
        means = (statistics.geometric_mean(values("Q8-lds-hidden", "excess", n=n, method=name)) for name in names)
        yield f"| {n:,} | " + " | ".join(part(v, 4) for v in means) + " |"


def layers() -> Iterator[str]:
    every = kinds("Q-layers", "layers")
    for name, method in (('`method="paper"`', "dca_paper"), ("default", OURS)):
        cells = [part(mean("Q-layers", "anchors", data="cones", layers=s, method=method)) for s in every]
        yield f"| {name} | {' | '.join(cells)} |"

    def found(data: str, method: str) -> list[float]:
        return [mean("Q-layers", "quality", data=data, layers=s, method=method) for s in every]

    rows, frames = found("mixture", OURS), found("chain", OURS)
    assert max(rows) - min(rows) < 1e-3
    assert max(frames) - min(frames) < 1e-3
    yield f"(accuracy {part(rows[0], 3)} in the paper's protocol at variance 2; log likelihood per frame {part(-frames[0], 3)} from the truth's)"
    yield f"does not gain by more of them either (accuracy {part(max(found('mixture', 'dca_paper')), 3)} at most)."


def subspaces() -> Iterator[str]:
    for span, noise in ((30, 0.1), (60, 0.2), (90, 0.5), (120, 0.7)):
        found = {
            name: mean("Q10-common", "accuracy", span=span, noise=noise, method=name)
            for name in ("dca_paper", "dask_dca codes", OURS)
        }
        yield f"| {span}, {part(noise, 1)} | {part(found['dca_paper'])} | {part(found['dask_dca codes'])} | {part(found[OURS], 3)} |"
    for angle in kinds("Q10-angles", "angle"):
        row = [
            part(mean("Q10-angles", "accuracy", angle=angle, method=name))
            for name in ("dca_paper", OURS, "k-means", "spectral", "TSC (own)")
        ]
        yield f"| {angle} | {' | '.join(row)} |"
    precise = {
        name: [part(mean("Q10-cones", "precision", span=s, method=name)) for s in (30, 60, 90, 120)]
        for name in (OURS, "dca_paper")
    }
    assert set(precise[OURS]) == {"1.00"}
    assert {mean("Q10-cones", "accuracy", method=name) for name in precise} == {1.0}
    yield f"precision of the 40 anchors at spans 30 / 60 / 90 / 120 is {' / '.join(precise['dca_paper'])} with the paper's method and 1.00 everywhere with the default."
    spans, noises = kinds("Q10", "span"), kinds("Q10", "noise")
    grid = [mean("Q10", "precision", method=name) for name in ("dca_paper", OURS)]
    yield f"(spans {min(spans)} to {max(spans)}, noise {min(noises):.0f} to {max(noises)}) it is {part(grid[0])} and {part(grid[1])}."
    yield from images()
    cpu, peak = (
        mean("S11", "cpu", n=10**6, method="SubspaceClustering.fit"),
        [max(values("S11", "peak_mb", n=n)) for n in (10**6, 10**5)],
    )
    times = ratio("S11", "cpu", "SubspaceClustering.fit", "sum", mean, n=10**6)
    yield f"took {cpu:.0f} seconds of two workers' CPU, {times:.1f} times that of their sum; a worker's memory peaked at {peak[0]:.0f} MB, and at {peak[1]:.0f} MB with 100,000 rows."


def images() -> Iterator[str]:
    def pair(name: str, images: str) -> str:
        return " / ".join(
            part(mean("Q10-images", value, images=images, method=name)) for value in ("accuracy", "information")
        )

    starts = {
        "YALE": "YALE (15 faces, 11 each)",
        "UMIST": "UMIST (20 faces)",
        "COIL-100": "COIL-100 (10 views each)",
        "MNIST-5k": "MNIST (5,000)",
        "USPS": "USPS (9,298)",
    }
    for at in kinds("Q10-images", "images"):
        plain, ours = pair("dask_dca plain", at), pair(OURS, at)
        yield f"| {starts.get(at, at)} | {plain} | {'the same' if ours == plain else ours} | {pair('spectral', at)} |"
    yield f"YALE {pair('dask_dca lighting', 'YALE')}, but UMIST {pair('dask_dca lighting', 'UMIST')}."


def rare() -> Iterator[str]:
    for noise in kinds("Q15-rare", "noise"):
        methods = (OURS, "one divide", "all rows sampled", "spa")
        cells = " | ".join(part(mean("Q15-rare", "rare", noise=noise, method=name)) for name in methods)
        yield f"| {part(noise, 2).rstrip('0').rstrip('.')} | {cells} |"
    looked = values("Q15-spoilt", "looked", share=0.0, method=OURS)
    yield f"Without a rare material {sum(looked):.0f} of {len(looked)} fits made a second divide pass".replace(
        "material 0", "material none"
    )
    found = values("Q15-spoilt", "rare", share=0.001, method=OURS)
    yield f"With one, {sum(found):.0f} of {len(found)} found it"
    near = [
        values("Q15-spoilt", "rare", spoilt="1 % outliers, near", share=0.001, method=name)
        for name in (OURS, "all rows sampled")
    ]
    assert not any(near[0] + near[1]), "update docs/models/anchors-and-cones.md"


def library() -> Iterator[str]:
    named = [part(mean("Q3-library", "named", method=name)) for name in (OURS, "clsunsal", "nnls_pruned", "nearest")]
    yield f"{named[0]} of those in the image are identified"
    yield f"by collaborative sparse regression {named[1]}, by pruned least squares {named[2]}, by the rows nearest to the image's own anchors {named[3]}"
    assert not any(values("Q3-lacking", "told", lacking=0)), "update docs/models/anchors-and-cones.md"
    silent = [
        record["left"] for record in document("Q3-lacking")["records"] if record["lacking"] and not record["told"]
    ]
    yield f"{warned()} fits warned, and of the {len(values('Q3-lacking', 'told', lacking=0))} with a whole library none"
    yield f"left {part(min(silent), 3)} to {part(max(silent), 3)} of the spread unexplained"


def cones() -> Iterator[str]:
    yield from layers()
    for solver in ("spa", "xray", "xray-dist", "xray-rand", "lp", "lp+planes", "greedy"):
        said = next(
            check["value"] for check in document("Q1-solvers")["checks"] if check["must"].startswith(f"{solver}, noise")
        )
        cells = [pair.split(": ")[1] for pair in said.split(", ")]
        yield (
            f"| `{solver}` | "
            + " | ".join(cells + [""] * (7 - len(cells))).replace("|  |", "| |").replace("|  |", "| |").rstrip()
        )
    inside = [name for name in kinds("Q1-solvers", "method") if name.startswith("dca(")]
    assert {min(values("Q1-solvers", "recall", method=name)) for name in inside} == {1.0}
    missed = {
        name: sum(v < 1 for v in values("Q1-solvers", "recall", method=name)) for name in kinds("Q1-solvers", "method")
    }
    assert {name: count for name, count in missed.items() if count} == {"xray-rand": 5}
    yield f"The default (planes) took {part(mean('Q1-solvers', 'seconds', method='dca(plane)', n=100, noise=0.1), 3)} s at 100 rows and was the fastest inside at every size."
    for n in kinds("Q1-solvers", "n"):
        seconds = {name: values("Q1-solvers", "seconds", method=name, n=n, noise=0.1) for name in inside}
        assert min((v[0], name) for name, v in seconds.items() if v)[1] == "dca(plane)"
    yield from rare()
    yield from library()
    yield from membership()


def membership() -> Iterator[str]:
    def faster(rays: str, k: int, name: str, *, face: bool) -> str:
        cases = [
            case
            for case in document("Q11")["records"]
            if (case["rays"], case["k"], case["margin"] == 0) == (rays, k, face)
        ]
        nnls, ours = (statistics.median(c["microseconds"] for c in cases if c["method"] == m) for m in ("nnls", name))
        return rough(nnls / ours)

    pairs = [(rays, k) for rays in ("independent", "dependent") for k in (5, 10, 20, 50)]
    for rays, k in pairs:
        times = [faster(rays, k, name, face=face) for name in ("in_cone", "in_cone_exact") for face in (True, False)]
        wrong = [mean("Q11", "false_inside", rays=rays, k=k, margin=m, method="in_cone") for m in (0.1, 1.0, 5.0, 20.0)]
        paper = mean("Q11", "false_outside", rays=rays, k=k, method="paper_planes")
        yield f"| {rays}, k = {k} | {' | '.join(times)} | {' / '.join(part(v) if v else '0' for v in wrong)} | {part(paper)} |"
    linear = [ratio("Q11", "microseconds", "linprog", "in_cone", rays=rays, k=k) for rays, k in pairs]
    yield f"a linear program a point is {float(f'{min(linear):.1g}'):,.0f} to {float(f'{max(linear):.2g}'):,.0f} times slower than the default"
    assert came_out("Q11", "no point inside") == came_out("Q11", "with exact=True") == [0.0]


def of_holes(model: str) -> Iterator[str]:
    rows = {"mixture": "rows", "chain": "frames"}[model]
    lost = {
        method: [
            mean("Q14", "likelihood", model=model, form=form, method="complete")
            - mean("Q14", "likelihood", model=model, form=form, method=method)
            for form in ("diag", "full")
        ]
        for method in (OURS, "means")
    }
    yield (
        f'On planted data with 30 % of all entries missing at random, new {rows} are {lost[OURS][0]:.4f} nats ("diag") and '
        f'{lost[OURS][1]:.4f} nats ("full") less likely per observed entry than under a fit of the complete {rows}; with '
        f"column means imputed in the fit they are {lost['means'][0]:.3f} and {lost['means'][1]:.3f} less likely."
    )

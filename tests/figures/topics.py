"""What the page of topics says."""

import statistics
from collections.abc import Iterator

from tests.figures.results import document, mean, part, values
from tests.figures.shared import OURS, thousands


def topics() -> Iterator[str]:
    names = {
        '`method="paper"`': "paper",
        "greedy anchors, Bayes recovery": "greedy anchors",
        "anchortopics": "anchortopics",
        "dask_dca, `max_iter=0`": "dask_dca, 0 passes",
        "dask_dca": OURS,
        "scikit-learn, batch": "scikit-learn batch",
        "tomotopy, 200 sweeps": "tomotopy 200",
        "tomotopy, 1,000 sweeps": "tomotopy 1000",
    }
    cases = [{"corpus": corpus, "k": k} for corpus in ("ap", "nips") for k in (10, 20, 50, 100)]
    for name, at in names.items():
        found = [values("Q9", "perplexity", method=at, **case) for case in cases]
        cells = [thousands(some[0]) if some else "-" for some in found]
        yield f"| {name} | " + " | ".join(f"**{cell}**" if at == OURS else cell for cell in cells) + " |"
    yield from topics_beside_others()
    yield from planted_topics()


def topics_beside_others() -> Iterator[str]:
    def of(value: str, name: str, corpus: str, k: int) -> float:
        return mean("Q9", value, method=name, corpus=corpus, k=k)

    gibbs, columns = "tomotopy 1000", [(corpus, k) for corpus in ("ap", "nips") for k in (10, 20, 50, 100)]
    more = {key: of("perplexity", OURS, *key) / of("perplexity", gibbs, *key) - 1 for key in columns}
    assert all(share < 0 for share in more.values())
    seconds = [of("seconds", name, "nips", 100) for name in (gibbs, OURS)]
    yield (
        f"on NIPS it is {part(-100 * more['nips', 50], 1)} % below 1,000 sweeps of tomotopy with k = 50 and "
        f"{part(-100 * more['nips', 100], 1)} % with k = 100, where these took {seconds[0]:.0f} CPU seconds and the fit {seconds[1]:.0f}."
    )
    pairs = {key: [of("npmi", name, *key) for name in (OURS, gibbs)] for key in columns}
    assert all(ours > peer for ours, peer in pairs.values())
    texts = {key: " and ".join(part(value, 3) for value in pair) for key, pair in pairs.items()}
    yield "with k = 10, 20, 50 and 100 " + "; ".join(
        f"on {corpus.upper()} {', '.join(texts[corpus, k] for k in (10, 20, 50, 100))}" for corpus in ("ap", "nips")
    )
    large = {p: next(case for case in document("S8")["records"] if case["max_iter"] == p) for p in (0, 5)}
    yield (
        f"took {large[5]['ratio']:.0f} times as long as one pass that sums the non-zeros, {large[5]['cpu_ratio']:.0f} times in CPU seconds "
        f"(`max_iter=0`: {large[0]['ratio']:.0f} and {large[0]['cpu_ratio']:.0f} times); the greatest memory of a worker was {large[5]['peak']:.0f} MB."
    )


def planted_topics() -> Iterator[str]:
    def error(name: str, case: tuple[int, int, int, bool]) -> float:
        return mean(
            "Q9-planted", "error", method=name, **dict(zip(("n_words", "k", "length", "correlated"), case, strict=True))
        )

    def cell(case: tuple[int, int, int, bool]) -> str:
        ours, peer = error(OURS, case), error("tomotopy 200", case)
        return f"**{part(ours)}**, {part(peer)}" if ours <= peer else f"{part(ours)}, **{part(peer)}**"

    columns = [(k, correlated) for k in (20, 50, 100) for correlated in (False, True)]
    for n_words in (2000, 5000, 10_000):
        for length in (500, 200, 50):
            yield f"| {n_words:,}, {length} | " + " | ".join(cell((n_words, k, length, c)) for k, c in columns) + " |"
    cases = [(n, k, length, c) for n in (2000, 5000, 10_000) for length in (500, 200, 50) for k, c in columns]
    gains = [1 - error(OURS, case) / error("tomotopy 200", case) for case in cases]
    assert (sum(gain < 0 for gain in gains), round(5 * statistics.median(gains))) == (0, 2), "all 54, two fifths"
    ours, gibbs = (values("Q9-planted", "seconds", method=name) for name in (OURS, "tomotopy 200"))
    yield f"which takes {min(gibbs):.0f} to {max(gibbs):.0f} CPU seconds where the fit takes {part(min(ours))} to {max(ours):.0f}"

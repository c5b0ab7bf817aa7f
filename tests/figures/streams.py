"""What the page of streams says."""

from collections.abc import Iterator

from tests.figures.results import kinds, mean
from tests.figures.shared import thousands


def streams() -> Iterator[str]:
    for model in kinds("Q13-likelihood", "model"):
        ways = ("partial_fit", "fit", "first batch")
        cells = [f"{mean('Q13-likelihood', 'likelihood', model=model, method=way):.4f}" for way in ways]
        yield f"| `{model.partition(',')[0]}`{model[model.index(',') :]} | " + " | ".join(cells) + " |"
    names = {
        "`partial_fit`": "partial_fit",
        "`partial_fit(forget=0.8)`": "partial_fit, forget=.8",
        "scikit-learn's `partial_fit`": "scikit-learn",
        "gensim's `update`": "gensim",
        "`fit` of all": "fit of all",
    }
    for name, method in names.items():
        cells = [thousands(mean("Q13-topics", "perplexity", batches=n, method=method)) for n in (5, 10, 20)]
        yield f"| {name} | " + " | ".join(cells) + " |"

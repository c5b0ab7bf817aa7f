"""Topics of short articles, from texts to a saved model and a picture."""

from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

import dask_dca as dca
from dask_dca.plotting.rows import plot_topics

SUBJECTS = {
    "astronomy": "telescope galaxy star orbit planet comet spectrum dust redshift nebula",
    "medicine": "patient trial dose therapy symptom clinic drug placebo diagnosis surgery",
    "climate": "rainfall temperature ocean drought monsoon glacier carbon forecast wind flood",
    "computing": "compiler kernel thread cache parser memory scheduler processor network latency",
}
COMMON = "we study the result of data with new method and show that model is better than before in this paper"


def abstracts(n: int, seed: int = 0) -> list[str]:
    """Simulate abstracts, each with words of one or two subjects and words that all of them use."""
    rng = np.random.default_rng(seed)
    words = [subject.split() for subject in SUBJECTS.values()]
    texts = []
    for share in rng.dirichlet([0.2] * len(words), n):
        subjects = rng.choice(len(words), size=30, p=share)
        own = [words[i][min(int(rng.exponential(3)), 9)] for i in subjects]
        texts.append(" ".join([*own, *rng.choice(COMMON.split(), 25)]))
    return texts


def main() -> None:
    vectorizer = CountVectorizer(stop_words="english")
    counts = vectorizer.fit_transform(abstracts(600))
    names = vectorizer.get_feature_names_out()
    train, test = counts[:500], counts[500:]

    model = dca.LatentDirichletAllocation(4).fit(train)
    for t, words in enumerate(model.top_words(5, names)):
        print(f"topic {t} ({100 * model.topic_weights_[t]:.0f} % of all words): {' '.join(words)}")
    print(f"perplexity of other abstracts: {model.perplexity(test):.1f} of {model.n_words_} words")

    plot_topics(model, feature_names=names).savefig("topics.png", dpi=120)
    model.save("topics.zarr")
    same = dca.load_model("topics.zarr").transform(test).tobytes() == model.transform(test).tobytes()
    print(f"saved and loaded: {same}; picture: {Path('topics.png').resolve().name}")


if __name__ == "__main__":
    main()

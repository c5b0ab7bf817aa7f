"""Breakages of the package, one line of its text each, with the tests that should notice them.

Each is a mistake that somebody could make: a tie decided the other way, a term of a merge left out, a border missed
by one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """A text of a module, what it becomes, and the tests to run."""

    name: str
    file: str  # within dask_dca/
    old: str
    new: str
    tests: tuple[str, ...]  # within tests/, as pytest takes them

    @property
    def floor(self) -> str:
        return self.file.split("/", maxsplit=1)[0]


EXACTNESS, SKETCH = "geometry/test_exactness.py", "geometry/test_sketch.py"
INVARIANCE, NMF, BAD = "models/nmf/test_invariance.py", "models/nmf/test_nmf.py", "models/test_bad_input.py"
SEQUENCES, MARKOV = "engine/test_sequences.py", "models/hmm/test_recursions.py"
HMM, HMM_INVARIANCE = "models/hmm/test_hmm.py", "models/hmm/test_invariance.py"
TILES, STARTS, CLIMB = "models/hmm/test_passes.py", "models/hmm/test_start.py", "models/hmm/test_climb.py"
KALMAN, KALMAN_KERNELS = "models/kalman/test_kalman.py", "models/kalman/test_filter.py"
MIXTURE, MIXTURE_INVARIANCE = "models/mixture/test_mixture.py", "models/mixture/test_invariance.py"
TOPICS, LDA, LDA_INVARIANCE = "models/lda/test_topics.py", "models/lda/test_lda.py", "models/lda/test_invariance.py"
VOTES, CODES = "geometry/test_votes.py", "models/subspace/test_codes.py"
DIVIDE, FURTHEST = "anchoring/test_divide.py", "models/mixture/test_furthest.py"

GEOMETRY = (
    Mutation(
        "of equal heights the later row wins in a tile",
        "geometry/extremes.py",
        "beats(height, row, found.heights[at], found.rows[at])",
        "beats(height, -row, found.heights[at], -found.rows[at])",
        (EXACTNESS, INVARIANCE),
    ),
    Mutation(
        "of equal heights the first part wins in a merge",
        "geometry/extremes.py",
        "wins = beats(part.heights, part.rows, best.heights, best.rows)",
        "wins = part.heights > best.heights",
        (EXACTNESS, INVARIANCE),
    ),
    Mutation(
        "a row that is both extremes of a plane votes twice",
        "geometry/votes.py",
        "np.concatenate([low, high[high != low]])",
        "np.concatenate([low, high])",
        (VOTES,),
    ),
    Mutation(
        "of equal votes the later row is selected",
        "geometry/votes.py",
        "np.lexsort((rows, -votes))",
        "np.lexsort((-rows, -votes))",
        (VOTES,),
    ),
    Mutation(
        "Wilson's bounds with a wrong power of n",
        "geometry/votes.py",
        "z * z / (4 * n * n)",
        "z * z / (4 * n)",
        (VOTES,),
    ),
    Mutation(
        "the coverage curve does not accumulate",
        "geometry/selection.py",
        "1.0 - np.minimum.accumulate(short, axis=0).mean(axis=1)",
        "1.0 - short.mean(axis=1)",
        (VOTES, NMF),
    ),
    Mutation(
        "a ridge of the subspace: moments are not centred",
        "geometry/sketch.py",
        " - np.outer(shift, shift) / mass) / n",
        ") / n",
        (SKETCH,),
    ),
    Mutation(
        "the last product of a power iteration is not turned",
        "geometry/sketch.py",
        "vectors = orthonormal(product @ turn)",
        "vectors = orthonormal(product)",
        (SKETCH,),
    ),
    Mutation(
        "eigenvalues are shrunk by half the aspect",
        "geometry/sketch.py",
        "inside = (y - aspect - 1.0) ** 2 - 4.0 * aspect",
        "inside = (y - aspect - 1.0) ** 2 - 2.0 * aspect",
        (SKETCH,),
    ),
    Mutation(
        "coordinates beyond those of the anchors are trusted wholly",
        "geometry/coordinates.py",
        "inside[:, d:] *= _trust(near, energy, distrust(frame, r)).astype(inside.dtype)[:, None]",
        "inside[:, d:] *= 1.0",
        ("geometry/test_coordinates.py", EXACTNESS),
    ),
    Mutation(
        "the energy of a far row is scaled back by half",
        "geometry/coordinates.py",
        'np.einsum("ij,ij->i", scaled[far], scaled[far]), 2 * shift[far])',
        'np.einsum("ij,ij->i", scaled[far], scaled[far]), shift[far])',
        ("geometry/test_coordinates.py", EXACTNESS),
    ),
    Mutation(
        "products of different digits are counted once",
        "geometry/exact.py",
        "product + product.T if second is first and i < j else product",
        "product",
        ("geometry/test_exact.py",),
    ),
    Mutation(
        "sums of digits in single precision",
        "geometry/exact.py",
        "digit[some].sum(axis=0)",
        "digit[some].astype(np.float32).sum(axis=0).astype(np.float64)",
        ("geometry/test_exact.py",),
    ),
    Mutation(
        "outliers keep their weight in the mean of the moments",
        "geometry/moments.py",
        "weighted[:, -1] = weights * (scale * np.sqrt(energy))",
        "weighted[:, -1] = scale * np.sqrt(energy)",
        (SKETCH, EXACTNESS),
    ),
)
ENGINE = (
    Mutation(
        "all-zero rows of the last tile alone are counted",
        "engine/checks.py",
        "census.zero_rows += int(empty.sum())",
        "census.zero_rows = int(empty.sum())",
        (f"{INVARIANCE}::test_any_chunking_gives_the_same_bits_in_float64",),
    ),
    Mutation(
        "all-zero rows count as rows behind the axis",
        "engine/checks.py",
        "census.behind_rows += int((~empty).sum())",
        "census.behind_rows += len(empty)",
        (BAD, "models/nmf/test_statistics.py"),
    ),
    Mutation(
        "counts of the last block alone are kept",
        "anchoring/divide.py",
        "census = sum((part.census for part in parts), RowCensus())\n    best = ",
        "census = parts[-1].census\n    best = ",
        (DIVIDE, f"{INVARIANCE}::test_any_chunking_gives_the_same_bits_in_float64"),
    ),
    Mutation(
        "directions depend on the block",
        "anchoring/divide.py",
        "directions = state.planes.regenerate()",
        "directions = np.roll(state.planes.regenerate(), start, axis=0)",
        (f"{INVARIANCE}::test_any_chunking_gives_the_same_bits_in_float64",),
    ),
    Mutation(
        "tiles leave out the first row of a block",
        "engine/tiles.py",
        "numbers = only[(only >= start) & (only < start + n)]",
        "numbers = only[(only > start) & (only < start + n)]",
        (DIVIDE, f"{INVARIANCE}::test_any_chunking_gives_the_same_bits_in_float64"),
    ),
    Mutation(
        "the first row of a block is not fetched",
        "engine/tiles.py",
        "numbers = wanted[(wanted >= start)",
        "numbers = wanted[(wanted > start)",
        (DIVIDE, "engine/test_rows.py"),
    ),
    Mutation(
        "fetched rows come in the order of the data",
        "engine/sampling.py",
        "return values if places is None else values[places]",
        "return values",
        (DIVIDE,),
    ),
    Mutation(
        "a halo lacks its first row",
        "engine/halo.py",
        "Window(max(start - halo.before, 0), start, stop)",
        "Window(max(start - halo.before + 1, 0), start, stop)",
        (SEQUENCES, KALMAN),
    ),
    Mutation(
        "a frame has a successor in the next sequence",
        "engine/sequences.py",
        "(number + lag < edges[which + 1])",
        "(number + lag <= edges[which + 1])",
        (SEQUENCES,),
    ),
    Mutation(
        "lengths of sequences are ignored",
        "engine/sequences.py",
        "return np.concatenate([[0], np.cumsum(found[found > 0], dtype=np.int64)])",
        "return np.array([0, n_rows], dtype=np.int64)",
        (SEQUENCES, HMM),
    ),
    Mutation(
        "a piece sees frames of the sequence before its own",
        "engine/sequences.py",
        "inside = (number >= start) & (number < stop)",
        "inside = (number >= low) & (number < stop)",
        (SEQUENCES, KALMAN),
    ),
    Mutation(
        "covariances at lags are divided by all frames",
        "models/hmm/lags.py",
        "@ centred[lag:] / max(int(there.sum()), 1)",
        "@ centred[lag:] / n",
        (STARTS,),
    ),
    Mutation(
        "rows that fill up a tile are scored",
        "models/mixture/passes.py",
        "plain_total(normalise(joint)[1][: len(numbers)], _NATS)",
        "plain_total(normalise(joint)[1], _NATS)",
        (f"{MIXTURE}::test_probabilities_and_criteria_are_scikit_learns_for_the_same_parameters",),
    ),
    Mutation(
        "sequences that begin inside a piece go on from the one before",
        "models/hmm/layout.py",
        "_by_step(step, piece - 1, steps, pieces)",
        "_by_step(step, piece - 1 + 0 * step, steps, 0)",
        (TILES,),
    ),
    Mutation(
        "transitions into the next sequence are counted",
        "models/hmm/expectation.py",
        "filtered[steps - 1 - t][:, at] = 0.0",
        "filtered[steps - 1 - t][:, at] *= 1.0",
        (TILES,),
    ),
    Mutation(
        "pairs of states are weighted by the transposed transitions",
        "models/hmm/expectation.py",
        "pairs * markov.transmat",
        "pairs * markov.transmat.T",
        (TILES,),
    ),
    Mutation(
        "the likelihood of what comes before a sequence inside a piece is lost",
        "models/hmm/expectation.py",
        "markov.startprob[:, None] * scale",
        "markov.startprob[:, None]",
        (TILES,),
    ),
    Mutation(
        "the difference from all frames is left out on the sample",
        "models/hmm/climb.py",
        "line + difference",
        "line + 0.0 * difference",
        (CLIMB,),
    ),
    Mutation(
        "of rows with equal keys the later one is best",
        "geometry/arg_best.py",
        "(keys == old_keys) & (rows < old_rows)",
        "(keys == old_keys) & (rows > old_rows)",
        ("geometry/test_arg_best.py",),
    ),
    Mutation(
        "of rows of one tile with equal keys the last one is best",
        "geometry/arg_best.py",
        "where = known.argmax(axis=0)",
        "where = len(known) - 1 - known[::-1].argmax(axis=0)",
        ("geometry/test_arg_best.py",),
    ),
    Mutation(
        "a word's pairs with itself stay in the co-occurrence",
        "models/lda/corpus.py",
        "return (sums - self.selves[:, None] * columns) / self.total",
        "return sums / self.total",
        ("models/lda/test_cooccurrence.py",),
    ),
    Mutation(
        "perplexity scores the words that were seen",
        "models/lda/passes.py",
        "return _likelihood(hidden, mixture_rates(hidden, model.rates, theta), model)",
        "return _likelihood(seen, mixture_rates(seen, model.rates, theta), model)",
        ("models/lda/test_topic_passes.py",),
    ),
    Mutation(
        "a row left out keeps its part in the variances",
        "models/mixture/leave_one_out.py",
        "scatter - share[:, None] / left * away**2",
        "scatter",
        ("models/mixture/test_family.py",),
    ),
    Mutation(
        "copies of a row are evidence of their own",
        "models/mixture/em.py",
        "shrinkage, responsibilities.sum(axis=0), mixture.means",
        "shrinkage, weights.sum(axis=0), mixture.means",
        ("models/mixture/test_em.py",),
    ),
    Mutation(
        "noise has weight",
        "models/mixture/passes.py",
        "shares = shares * counted[:, None]",
        "shares = shares * 1.0",
        (f"{MIXTURE}::test_noise_is_set_aside_and_has_no_weight",),
    ),
    Mutation(
        "a merge of the furthest keeps the places of the first part",
        "geometry/arg_best.py",
        "np.where(wins[..., None], other.values, self.values)",
        "self.values",
        (FURTHEST,),
    ),
    Mutation(
        "an error names the row within the block",
        "engine/sparse_rows.py",
        'row = start + int(np.searchsorted(rows.indptr, at, side="right")) - 1',
        'row = int(np.searchsorted(rows.indptr, at, side="right")) - 1',
        ("models/lda/test_input.py",),
    ),
)
KERNELS = (
    Mutation(
        "weights of the components are left out of the E-step",
        "models/mixture/em.py",
        "found += np.log(mixture.weights)",
        "found += 0.0",
        ("models/mixture/test_em.py",),
    ),
    Mutation(
        "determinants count with the wrong sign",
        "models/gaussians.py",
        "distances += gaussians.log_determinants",
        "distances -= gaussians.log_determinants",
        ("models/test_gaussians.py",),
    ),
    Mutation(
        "sequences start where the one before has ended",
        "models/hmm/recursions.py",
        "before[0][:, chains.first] = markov.startprob[:, None]",
        "before[0][:, chains.first] = before[0][:, chains.first]",
        (MARKOV, HMM),
    ),
    Mutation(
        "best paths by the transposed transitions",
        "models/hmm/scan.py",
        "ways = score[:, None] + log_transmat[:, :, None]",
        "ways = score[:, None] + log_transmat.T[:, :, None]",
        (MARKOV,),
    ),
    Mutation(
        "likelihoods of pieces add up twice",
        "models/hmm/scan.py",
        "now = now - likelihood",
        "now = now - 0.0",
        (MARKOV,),
    ),
    Mutation(
        "the noise of states takes last states for first ones",
        "models/kalman/passes.py",
        'before=every[:k, :k] - parts["last"]',
        'before=every[:k, :k] - parts["first"]',
        (KALMAN_KERNELS, KALMAN),
    ),
    Mutation(
        "chance correlations are not shrunk",
        "models/kalman/em.py",
        "found *= 1.0 - min(1.0, chance / squares) if squares > 0.0 else 1.0",
        "found *= 1.0",
        (KALMAN_KERNELS,),
    ),
    Mutation(
        "documents are weighted by one over their length",
        "models/lda/documents.py",
        "others = np.where(documents.scaled, m, m - 1.0)",
        "others = m",
        (TOPICS, "models/lda/test_cooccurrence.py"),
    ),
    Mutation(
        "mixtures are inferred without the prior",
        "models/lda/inference.py",
        "moved = mixture * explained + one(prior)",
        "moved = mixture * explained + one(0.0)",
        (TOPICS,),
    ),
    Mutation(
        "a Dirichlet distribution's total is one too large",
        "models/lda/inference.py",
        "total = 1.0 / min(max(rho, 1e-4), 1.0 - 1e-4) - 1.0",
        "total = 1.0 / min(max(rho, 1e-4), 1.0 - 1e-4)",
        (f"{LDA}::test_alpha_has_the_planted_total",),
    ),
    Mutation(
        "a landmark is coded by itself",
        "models/subspace/landmarks.py",
        "products[_same(rows, products, gram.diagonal())] = -np.inf",
        "_same(rows, products, gram.diagonal())",
        (CODES,),
    ),
    Mutation(
        "of two ranks the lesser decides",
        "models/subspace/landmarks.py",
        "return np.maximum(nearer, np.arange(keys.shape[1]))",
        "return np.minimum(nearer, np.arange(keys.shape[1]))",
        ("models/subspace/test_graphs.py",),
    ),
    Mutation(
        "topics of two levels are not sharpened",
        "models/lda/start.py",
        "(np.maximum(topics, _LEAST) / p) ** _SHARPNESS",
        "(np.maximum(topics, _LEAST) / p)",
        ("models/lda/test_start.py",),
    ),
    Mutation(
        "moves of topics are kept whatever other documents say",
        "models/lda/moves.py",
        "return best if most > least else None",
        "return best",
        ("models/lda/test_moves.py",),
    ),
    Mutation(
        "a word that comes again counts in full",
        "models/lda/inference.py",
        "data = np.minimum(counts.data, np.sqrt(counts.data))",
        "data = counts.data",
        ("models/lda/test_moves.py",),
    ),
    Mutation(
        "an empty cluster stays at the origin",
        "models/kmeans.py",
        'means[empty] = rows[np.argsort(-distances, kind="stable")[: len(empty)]]',
        "means[empty] = 0.0",
        ("models/test_kmeans.py",),
    ),
)
MODELS = (
    Mutation(
        "row numbers of the sample count its unusable rows",
        "anchoring/preprocess.py",
        "return Preprocessed(reading, energy, mean, sample[usable], scaled[usable], numbers[usable])",
        "return Preprocessed(reading, energy, mean, sample[usable], scaled[usable], numbers)",
        (DIVIDE, "models/test_sample.py"),
    ),
    Mutation(
        "units of states forget the initial mean",
        "models/kalman/passes.py",
        "np.diagonal(steady) + system.initial_mean**2",
        "np.diagonal(steady)",
        ("models/kalman/test_sums.py",),
    ),
    Mutation(
        "states are paired with the last of the sequence before",
        "models/kalman/passes.py",
        "later[begin, first] = False",
        "later[begin, first] = begin > 0",
        ("models/kalman/test_sums.py",),
    ),
)
MUTATIONS = (*GEOMETRY, *ENGINE, *KERNELS, *MODELS)

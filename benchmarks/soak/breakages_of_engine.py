"""Breakages of the engine and of anchoring."""

from benchmarks.breakage import BAD, DIVIDE, HMM, INVARIANCE, KALMAN, SEQUENCES, Mutation

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
        "an error names the row within the block",
        "engine/sparse_rows.py",
        'row = start + int(np.searchsorted(rows.indptr, at, side="right")) - 1',
        'row = int(np.searchsorted(rows.indptr, at, side="right")) - 1',
        ("models/lda/test_input.py",),
    ),
    Mutation(
        "row numbers of the sample count its unusable rows",
        "anchoring/preprocess.py",
        "return Preprocessed(reading, energy, mean, sample[usable], scaled[usable], numbers[usable])",
        "return Preprocessed(reading, energy, mean, sample[usable], scaled[usable], numbers)",
        (DIVIDE, "models/test_sample.py"),
    ),
)

"""One breakage: a text of a module, what it becomes, and the tests that should notice."""

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
HMM, HMM_INVARIANCE = "models/hmm/test_hmm.py", "contract/test_chunking.py"
TILES, STARTS, CLIMB = "models/hmm/test_passes.py", "models/hmm/test_start.py", "models/hmm/test_climb.py"
KALMAN, KALMAN_KERNELS = "models/kalman/test_kalman.py", "models/kalman/test_filter.py"
MIXTURE, MIXTURE_INVARIANCE = "models/mixture/test_mixture.py", "contract/test_chunking.py"
TOPICS, LDA, LDA_INVARIANCE = "models/lda/test_topics.py", "models/lda/test_lda.py", "contract/test_chunking.py"
VOTES, CODES = "geometry/test_votes.py", "models/subspace/test_codes.py"
DIVIDE, FURTHEST = "anchoring/test_divide.py", "models/mixture/test_furthest.py"

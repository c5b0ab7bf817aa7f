"""Figures on pages that no benchmark measured: sizes and settings of what was run, arithmetic, and what other tests hold."""

SETTINGS = {
    "README.md": (
        "Python 3.11",
        "its 95 % bounds",
        "whose spectrum is 1.3° from",  # tests/test_readme.py, and the next two
        "coverage 0.969 with all nine anchors, 0.42 with the first two",
        "coverage 1.0 and explained 1.0 with pure rows, 0.89 and 0.95 for blends, 0.84 and -0.15 for unrelated",
    ),
    "docs/certificate.md": ("Wilson's 95 % bounds", "above 0.95"),
    "docs/developing/infra.md": ("Python 3.11 to 3.14", "NumPy 2.5, Dask 2026.8 and zarr 3.4", "with 3.13."),
    "docs/install.md": ("Python 3.11",),
    "docs/method.md": ("4 times the root of p",),
    "docs/models/anchors-and-cones.md": (
        "noise 0.1, from one run",
        "outside by 0.1 to 20 degrees",
        "at 0.1 / 1 / 5 / 20 degrees",
        "more than 0.3 of their normalized",
        "a material in 0.03 to 1 % of the rows",
    ),
    "docs/streams.md": (
        "multiplies the older sums by 0.8 (1 by default)",
        "about 0.8 for topics",
    ),
    "docs/models/gaussian-mixture.md": ("(2 % of the rows", "noise 0.5, ten draws", "at most 2 % of the rows"),
    "docs/models/hidden-markov-model.md": ("the 4 % of frames", "two workers of 2 GB:"),
    "docs/models/nmf.md": ("noise is 0.3 or more:", "with 95 % bounds", "greatest share is 0.6 and 0.8 /"),
    "docs/models/subspace-clustering.md": (
        "over noise 0.1 to 1.3",
        "in noise of 0.7 and more",
        "(ridge 0.1)",
        "is below 0.85, the",
        "with ridge 0.3, from",
        "chance is 0.25",
        "noise 0.2) both",
        "a ridge of 0.3 is taken below 0.85.",
    ),
    "docs/models/topics.md": (
        "mixes 1 % of the corpus",
        "at least 0.8 times",
        "Above 1.25 EM",
        "(60 % of the documents",
        "ones is 0.025 below the best so far",
        "processes of 2 GB,",
    ),
    "docs/running/faults.md": ("more than 8 MB",),
    "docs/running/index.md": ("one thread and 2 GB,", "2 GB in chunks of 31 MiB"),
    "docs/running/slurm.md": ("of two cores and 8 GB,",),  # tests/deploy/test_slurm.py
    "docs/running/jupyter.md": ("since 2026.6;",),
    "docs/scale.md": (
        "at most 512 MB",
        "(128 MB at most)",
        "data of 2 GB.",
        "up to 32 MB",
        "40 GB (20 million rows of 500 features in 31 MiB blocks",
        "two workers of 2 GB:",
        "within 0.1 degrees",
        "of 64 to 512 MB.",
        "no greater than 32 MiB.",
    ),
}
SIMULATED = ("## 1 TB and 100 TB, simulated", "## Memory")  # what stands between holds arithmetic, too

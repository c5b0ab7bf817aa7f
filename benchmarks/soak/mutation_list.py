"""Breakages of the package, one line of its text each, with the tests that should notice them.

Each is a mistake that somebody could make: a tie decided the other way, a term of a merge left out, a border missed
by one.
"""

from __future__ import annotations

from benchmarks.breakage import Mutation
from benchmarks.breakages_of_engine import ENGINE
from benchmarks.breakages_of_geometry import GEOMETRY
from benchmarks.breakages_of_models import MODELS

__all__ = ["MUTATIONS", "Mutation"]

MUTATIONS = (*GEOMETRY, *ENGINE, *MODELS)

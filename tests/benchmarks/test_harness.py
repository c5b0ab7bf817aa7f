"""Cases of a benchmark that are chosen are run, and the others keep the results that they have."""

import json
from typing import ClassVar

from benchmarks import harness


class Counts(harness.Benchmark):
    id = "X1"
    title = protocol = ""
    param_names: ClassVar = ["size", "method"]
    params: ClassVar = [(1, 2), ("ours", "peer")]
    answer = "old"

    def setup(self, size, method):
        pass

    def measure(self, size, method):
        return {"found": self.answer}


def test_only_the_chosen_cases_are_run(tmp_path):
    harness.save(harness.run(Counts()), tmp_path)
    Counts.answer = "new"
    found = harness.run(Counts(), {"method": ["ours"], "size": ["2"]}, tmp_path)
    assert {(row["size"], row["method"]): row["found"] for row in found["records"]} == {
        (1, "ours"): "old",
        (1, "peer"): "old",
        (2, "ours"): "new",
        (2, "peer"): "old",
    }
    harness.save(found, tmp_path)
    assert len(json.loads((tmp_path / "X1.json").read_text())["records"]) == 4

"""Figures of the benchmarks' files, written as the pages write them."""

from __future__ import annotations

import json
import re
import statistics
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


@cache
def document(identity: str) -> dict[str, Any]:
    """Everything that a benchmark kept."""
    kept: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{identity}.json").read_text())
    return kept


def values(identity: str, name: str, **where: Any) -> list[float]:
    """What the cases of a benchmark measured, of those that are as `where` says."""
    cases = [case for case in document(identity)["records"] if all(case.get(key) == v for key, v in where.items())]
    return [case[name] for case in cases if case.get(name) is not None]


def mean(identity: str, name: str, **where: Any) -> float:
    return statistics.fmean(values(identity, name, **where))


def median(identity: str, name: str, **where: Any) -> float:
    return float(statistics.median(values(identity, name, **where)))


def ratio(identity: str, name: str, above: str, below: str, of: Callable[..., float] = median, **where: Any) -> float:
    """How many times one method has what another has."""
    return of(identity, name, method=above, **where) / of(identity, name, method=below, **where)


def came_out(identity: str, must: str) -> list[float]:
    """The numbers in what came out of a requirement, which begins with `must`."""
    found = next(check["value"] for check in document(identity)["checks"] if check["must"].startswith(must))
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", found)]


def kinds(identity: str, name: str) -> list[Any]:
    """The different values of a parameter, in their order."""
    return list(dict.fromkeys(case[name] for case in document(identity)["records"]))


def part(value: float, digits: int = 2) -> str:
    """A share as the pages write it: 0.76, 1.00, -0.11."""
    return f"{value:.{digits}f}"


def rough(value: float) -> str:
    """Two digits: 110, 16, 5.2."""
    return f"{float(f'{value:.2g}'):.0f}" if value >= 9.95 else f"{value:.1f}"


def family(page: str) -> list[Path]:
    """A page, and those below it that begin with its name: its method, what was measured."""
    path = ROOT / page
    return [path, *sorted(path.parent.glob(f"{path.stem}-*.md"))] if path.parent != ROOT else [path]


def text_of(page: str) -> str:
    """A page and those below it."""
    return "\n".join(path.read_text() for path in family(page))

"""RESULTS.md and its pictures, made from the JSON files alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Record, group, mean
from benchmarks.methods import LIBRARY, MAIN

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

HEAD = """# Results

Made by `python -m benchmarks` from the JSON files in `results/`; do not edit. A cell is the mean over the
runs of its row, the worst run in brackets; the best mean of a row is bold. Where the library loses, the row
stays.
"""
LABELS = {
    "recall": "share of the rays found",
    "error": "error of the anchors",
    "angle": "degrees",
    "rmse": "RMSE",
}


def write(results: Path, target: Path) -> None:
    """Regenerate `target` (Markdown) and the pictures in `results` from results/*.json."""
    documents = [json.loads(path.read_text()) for path in sorted(results.glob("[!.]*.json"), key=_id)]
    parts = [HEAD, _overview(documents)]
    parts += [_section(document, results, target) for document in documents]
    target.write_text("\n".join(parts))


def _id(path: Path) -> str:
    return path.stem


def _overview(documents: list[Record]) -> str:
    lines = ["| id | must | came out | met |", "|---|---|---|---|"]
    for document in documents:
        for check in document["checks"]:
            met = {True: "yes", False: "**no**", None: "not run"}[check["met"]]
            lines.append(f"| {document['id']} | {check['must']} | {check['value']} | {met} |")
    return "\n".join(lines) + "\n"


def _section(document: Record, results: Path, target: Path) -> str:
    parts = [f"## {document['id']}: {document['title']}\n", document["protocol"] + "\n"]
    if document["quick"]:
        parts.append("Small sizes (`--quick`): the figures mean little.\n")
    parts += [f"Missing: {text}.\n" for text in document["missing"]]
    records = [record for record in document["records"] if "failed" not in record]
    for i, plot in enumerate(document["plots"]):
        rows = _where(records, plot["where"])
        if rows:
            picture = results / f"{document['id']}-{i + 1}.png"
            draw(plot, rows, picture, document["title"])
            parts.append(f"![{plot['title']}]({picture.relative_to(target.parent)})\n")
    for spec in document["tables"]:
        rows = _where(records, spec["where"])
        if rows:
            parts.append(table(spec, rows))
    parts.append("Versions: " + ", ".join(f"{k} {v}" for k, v in document["versions"].items()) + ".\n")
    return "\n".join(parts)


def _where(records: list[Record], where: dict[str, Any] | None) -> list[Record]:
    return [r for r in records if all(r[name] == value for name, value in (where or {}).items())]


def table(spec: Record, records: list[Record]) -> str:
    """One Markdown table: mean (worst) of `value`, rows by columns, with a last row of means over rows."""
    columns = list(dict.fromkeys(record[spec["columns"]] for record in records))
    means: dict[Any, list[float]] = {column: [] for column in columns}
    worsts: dict[Any, list[float]] = {column: [] for column in columns}
    head = [*spec["rows"], *map(str, columns)]
    lines = [f"**{spec['title']}**\n", _line(head), _line(["---"] * len(head))]
    worst = min if spec["better"] == "max" else max
    for key, cells in group(records, *spec["rows"]).items():
        by_column = {name: [r[spec["value"]] for r in rs] for (name,), rs in group(cells, spec["columns"]).items()}
        pairs = {name: (mean(values), worst(values)) for name, values in by_column.items()}
        lines.append(_line([*map(str, key), *_cells(pairs, columns, spec)]))
        for name, (average, extreme) in pairs.items():
            means[name].append(average)
            worsts[name].append(extreme)
    if len(lines) > 4:
        full = max(map(len, means.values()))
        overall = {c: (mean(means[c]), worst(worsts[c])) for c in columns if len(means[c]) == full}
        blank = [""] * (len(spec["rows"]) - 1)
        lines.append(_line(["all rows", *blank, *_cells(overall, columns, spec)]))
    return "\n".join(lines) + "\n"


def _cells(pairs: dict[Any, tuple[float, float]], columns: list, spec: Record) -> list[str]:
    digits = spec["digits"]
    pick = max if spec["better"] == "max" else min
    best = f"{pick(average for average, _ in pairs.values()):.{digits}f}"
    cells = []
    for column in columns:
        if column not in pairs:
            cells.append("-")
            continue
        average, extreme = (f"{value:.{digits}f}" for value in pairs[column])
        cells.append(f"**{average}** ({extreme})" if average == best else f"{average} ({extreme})")
    return cells


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def draw(plot: Record, records: list[Record], path: Path, title: str) -> None:
    """One panel for each value against x; the library's lines are thick."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(plot["values"]) + 2, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(plot["values"]), squeeze=False)[0]
    for value, axes in zip(plot["values"], panels, strict=True):
        _panel(axes, plot["x"], value, records)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", fontsize=8)
    figure.suptitle(f"{title}: {plot['title']}")
    figure.savefig(path, dpi=90)


def _panel(axes: Axes, x: str, value: str, records: list[Record]) -> None:
    for i, ((method,), rows) in enumerate(group(records, "method").items()):
        points = sorted((key[0], mean([r[value] for r in rs])) for key, rs in group(rows, x).items())
        own = method in LIBRARY
        axes.plot(
            *zip(*points, strict=True),
            label=method,
            color="black" if method == MAIN else f"C{i % 10}",
            linewidth=2.5 if method == MAIN else 1.2,
            linestyle="-" if own else ("--", ":", "-.")[i % 3],
            marker="o" if own else ".",
            markersize=3,
        )
    axes.set_xlabel(x)
    axes.set_title(LABELS.get(value, value))
    if value == "seconds":
        axes.set_yscale("log")

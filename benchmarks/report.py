"""RESULTS.md and its pictures, made from the JSON files alone."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from benchmarks.harness import SHOWN, Record, group, mean
from benchmarks.methods import LIBRARY, MAIN

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

HEAD = """# Results

Made by `python -m benchmarks` from the JSON files in `results/`; do not edit. A cell is the mean over the
runs of its row, the worst run in brackets; the best mean of a row is bold. Rows in which the library loses
are kept.
"""
PARTS = (
    ("Q", "Quality", "are the right anchors, components, states and topics found"),
    ("S", "Speed and scale", "seconds, reads, memory and workers"),
    ("", "Faults and chunkings", "are the promises kept under faults and for any chunking"),
)
LONG = 240  # characters of a result in the overview; the section has the whole
MET = {True: "yes", False: "**no**", None: "reported"}
LABELS = {
    "recall": "share of the rays found",
    "error": "error of the anchors",
    "angle": "degrees",
    "rmse": "RMSE",
    "anchors": "anchors found",
    "accuracy": "clustering accuracy",
    "information": "mutual information",
    "rand": "adjusted Rand",
    "false_inside": "outside called inside",
    "microseconds": "microseconds a point",
}


def write(results: Path, target: Path) -> None:
    """Regenerate `target` (Markdown) and the pictures in `results` from results/*.json."""
    documents = [json.loads(path.read_text()) for path in results.glob("[!.]*.json")]
    documents.sort(key=lambda document: _order(document["id"]))
    parts = [HEAD, _overview(documents)]
    parts += [_section(document, results, target) for document in documents]
    target.write_text("\n".join(parts))


def _order(name: str) -> tuple[int, tuple[int, ...], str]:
    """Quality first, then speed, then the others; in each by number."""
    part = next(i for i, (letter, *_) in enumerate(PARTS) if re.match(rf"{letter}(\d|-|$)" if letter else "", name))
    numbers = tuple(int(digits) for digits in re.findall(r"\d+", name)) or (1000,)
    return part, numbers, name


def _overview(documents: list[Record]) -> str:
    """List the requirements that are not met, and the contents."""
    checks = [(document, check) for document in documents for check in document["checks"]]
    missed = [(document, check) for document, check in checks if check["met"] is False]
    asked = sum(check["met"] is not None for _, check in checks)
    lines = [f"{asked - len(missed)} of {asked} requirements are met. Every section begins with its requirements; the"]
    lines += [f"{len(missed)} that are not met are also listed here.\n"]
    lines += ["| benchmark | required | measured |", "|---|---|---|"]
    for document, check in missed:
        value = check["value"] if len(check["value"]) <= LONG else check["value"][:LONG].rsplit(" ", 1)[0] + " ..."
        lines.append(_line([_link(document), check["must"], value]))
    for i, (_, name, about) in enumerate(PARTS):
        lines += ["", f"**{name}**: {about}.", ""]
        lines += [f"- {_link(d)}: {d['title']}" for d in documents if _order(d["id"])[0] == i]
    return "\n".join(lines) + "\n"


def _link(document: Record) -> str:
    heading = f"{document['id']}: {document['title']}".lower()
    return f"[{document['id']}](#{re.sub(r'[^a-z0-9_ -]', '', heading).replace(' ', '-')})"


def _judged(checks: list[Record]) -> str:
    lines = ["| required | measured | met |", "|---|---|---|"]
    lines += [_line([check["must"], check["value"], MET[check["met"]]]) for check in checks]
    return "\n".join(lines) + "\n"


def _section(document: Record, results: Path, target: Path) -> str:
    parts = [f"## {document['id']}: {document['title']}\n", document["protocol"] + "\n"]
    if document["quick"]:
        parts.append("Small sizes (`--quick`): the figures are not meaningful.\n")
    parts += [f"Missing: {text}.\n" for text in document["missing"]]
    parts.append(_judged(document["checks"]))
    records = [record for record in document["records"] if "failed" not in record]
    for i, plot in enumerate(document["plots"]):
        rows = _where(records, plot["where"])
        if rows:
            picture = results / f"{document['id']}-{i + 1}.png"
            (draw_grid if "y" in plot else draw)(plot, rows, picture, document["title"])
            parts.append(f"![{plot['title']}]({picture.relative_to(target.parent)})\n")
    for spec in document["tables"]:
        rows = _where(records, spec["where"])
        if rows:
            parts.append((counted if spec.get("counts") else table)(spec, rows))
    parts.append("Versions: " + ", ".join(f"{k} {v}" for k, v in document["versions"].items()) + ".\n")
    return "\n".join(parts)


def _where(records: list[Record], where: dict[str, Any] | None) -> list[Record]:
    return [r for r in records if all(r[name] == value for name, value in (where or {}).items())]


def counted(spec: Record, records: list[Record]) -> str:
    """One Markdown table of counts: sums of `value`, rows by columns, with a last row of all."""
    columns = [name for (name,) in group(records, spec["columns"])]
    lines = [f"**{spec['title']}**\n", _line([*spec["rows"], *map(str, columns)])]
    lines.append(_line(["---"] * (len(spec["rows"]) + len(columns))))
    everything = [(("all", *[""] * (len(spec["rows"]) - 1)), records)]
    for key, cells in [*group(records, *spec["rows"]).items(), *everything]:
        sums = [sum(r[spec["value"]] for r in cells if r[spec["columns"]] == name) for name in columns]
        lines.append(_line([*map(str, key), *map(str, sums)]))
    return "\n".join(lines) + "\n"


def table(spec: Record, records: list[Record]) -> str:
    """One Markdown table: mean (worst) of `value`, rows by columns, with a last row of means over rows.

    Where no cell is better than another, only means.
    """
    columns = list(dict.fromkeys(record[spec["columns"]] for record in records))
    means: dict[Any, list[float]] = {column: [] for column in columns}
    worsts: dict[Any, list[float]] = {column: [] for column in columns}
    head = [*(SHOWN.get(name, name) for name in spec["rows"]), *map(str, columns)]
    lines = [f"**{spec['title']}**\n", _line(head), _line(["---"] * len(head))]
    worst = min if spec["better"] == "max" else max
    for key, cells in group(records, *spec["rows"]).items():
        scored = [r for r in cells if r.get(spec["value"]) is not None]  # not every case has every score
        by_column = {name: [r[spec["value"]] for r in rs] for (name,), rs in group(scored, spec["columns"]).items()}
        if not by_column:
            continue
        pairs = {name: (mean(values), worst(values)) for name, values in by_column.items()}
        lines.append(_line([*(SHOWN.get(part, str(part)) for part in key), *_cells(pairs, columns, spec)]))
        for name, (average, extreme) in pairs.items():
            means[name].append(average)
            worsts[name].append(extreme)
    if len(lines) > 4 and spec["better"] != "none" and spec.get("summary", True):
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
        if spec["better"] == "none":
            cells.append(average)
            continue
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


def draw_grid(plot: Record, records: list[Record], path: Path, title: str) -> None:
    """Heat maps, a row for each value and a column a method; or all methods' contours of one value at a level."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    methods = [name for (name,) in group(records, "method")]
    seen = [value for value in plot["values"] if any(r.get(value) is not None for r in records)]
    plot = plot | {"values": seen or plot["values"][:1]}
    maps = {(value, name): _map(plot, records, value, name) for value in plot["values"] for name in methods}
    if plot["level"] is not None:
        figure = Figure(figsize=(7, 5), layout="constrained")
        FigureCanvasAgg(figure)
        _contours(figure.subplots(), plot, maps)
    else:
        figure = Figure(figsize=(1.9 * len(methods) + 1, 1.7 * len(plot["values"]) + 1), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(plot["values"]), len(methods), squeeze=False, sharex=True, sharey=True)
        for value, row in zip(plot["values"], panels, strict=True):
            _heat_maps(row, plot, value, {name: maps[value, name] for name in methods})
        for name, axes in zip(methods, panels[0], strict=True):
            axes.set_title(name, fontsize=9, fontweight="bold" if name == MAIN else None)
    figure.suptitle(f"{title}: {plot['title']}", fontsize=10)
    figure.savefig(path, dpi=90)


def _map(plot: Record, records: list[Record], value: str, method: str) -> tuple[list, list, list[list[float]]]:
    """Values of x and of y, and means of `value` at them as rows of y (nan where the method was not run)."""
    own = [record for record in records if record["method"] == method]
    means = {
        key: mean([r[value] for r in rs if r.get(value) is not None])
        for key, rs in group(own, plot["x"], plot["y"]).items()
    }
    xs, ys = sorted({x for x, _ in means}), sorted({y for _, y in means})
    return xs, ys, [[means.get((x, y), float("nan")) for x in xs] for y in ys]


def _heat_maps(row: Any, plot: Record, value: str, maps: dict[str, tuple[list, list, list[list[float]]]]) -> None:
    """One value of all methods in one range of colours."""
    from matplotlib.colors import LogNorm, Normalize

    flat = [number for _, _, rows in maps.values() for line in rows for number in line if number == number]
    logarithmic = value in ("seconds", "error")
    if not flat:
        return
    high = min(max(flat), 10 * sorted(flat)[len(flat) // 2]) if logarithmic else max(flat)  # failures run away
    low = min((v for v in flat if v > 0.0), default=1e-12) if logarithmic else min(0.0, *flat)
    norm = (LogNorm if logarithmic else Normalize)(low, max(high, 2 * low))
    for axes, (xs, ys, rows) in zip(row, maps.values(), strict=True):
        mesh = axes.pcolormesh(
            xs, ys, rows, norm=norm, cmap="viridis_r" if logarithmic else "viridis", shading="nearest"
        )
    row[0].set_ylabel(f"{LABELS.get(value, value)}\n{plot['y']}", fontsize=8)
    for axes in row:
        axes.tick_params(labelsize=7)
    row[0].figure.colorbar(mesh, ax=list(row), fraction=0.05, pad=0.01).ax.tick_params(labelsize=7)


def _contours(axes: Axes, plot: Record, maps: dict[Any, tuple[list, list, list[list[float]]]]) -> None:
    (value,) = plot["values"]
    for i, ((_, method), (xs, ys, rows)) in enumerate(maps.items()):
        own = method in LIBRARY
        color = "black" if method == MAIN else f"C{i % 10}"
        if len(xs) > 1 and len(ys) > 1:
            width, line = (2.5 if method == MAIN else 1.2), ("-" if own else "--")
            axes.contour(xs, ys, rows, levels=[plot["level"]], colors=[color], linewidths=width, linestyles=line)
        axes.plot([], [], color=color, linestyle="-" if own else "--", label=method)
    axes.set(xlabel=plot["x"], ylabel=plot["y"], title=f"{LABELS.get(value, value)} {plot['level']}")
    axes.legend(fontsize=8)


def _panel(axes: Axes, x: str, value: str, records: list[Record]) -> None:
    for i, ((method,), rows) in enumerate(group(records, "method").items()):
        points = sorted(
            (key[0], mean([r[value] for r in rs if r.get(value) is not None])) for key, rs in group(rows, x).items()
        )
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

"""One HTML page of several runs: no network, nothing beside it."""

import json
import math
import time
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .reading import RecordedRun, Series, best, differences

MOST_POINTS = 1_500
"""Of one curve: more are not seen on any screen."""

HALVES = ("train", "val", "validation", "test")
FAMILIES = ("lr", "grad_norm", "param_norm", "perf", "metrics")
"""Names before the slash whose values share one chart."""

TITLES = {"lr": "learning rate", "perf": "throughput"}
ORDER = ("loss", "lr", "perf", "grad_norm")


def render(runs: list[RecordedRun]) -> str:
    """The whole page."""
    title = ", ".join(run.name for run in runs)
    data = {"runs": [run.name for run in runs], "charts": _charts(runs)}
    # Inside of <script> only "</" and "<!--" could end it early.
    embedded = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    here = Path(__file__).parent
    return PAGE.format(
        title=escape(title),
        style=(here / "page.css").read_text(),
        script=(here / "page.js").read_text(),
        data=embedded,
        made=time.strftime("%Y-%m-%d %H:%M"),
        summary=_summary(runs),
        final=_final(runs),
        config=_config(runs),
        events=_events(runs),
    )


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none';
 style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>{title}</h1><p>made {made}</p></header>
<main>
{summary}
<div id="controls"></div>
<div id="charts"></div>
<noscript><p>The curves need JavaScript.</p></noscript>
{final}
{config}
{events}
</main>
<script type="application/json" id="data">{data}</script>
<script>
{script}</script>
</body>
</html>
"""


def _charts(runs: list[RecordedRun]) -> list[dict[str, Any]]:
    """Title and curves of each chart; curves that belong together share one."""
    names = dict.fromkeys(
        name for run in runs for name, series in run.series.items() if series.steps
    )
    charts: dict[str, list[str]] = {}
    for name in names:
        charts.setdefault(_chart_of(name), []).append(name)
    ranked = sorted(charts, key=lambda chart: (_rank(chart), chart))
    return [
        {
            "title": TITLES.get(chart, chart),
            "names": sorted(charts[chart]),
            "curves": [
                {"run": index, "name": name, **_points(run.series[name])}
                for index, run in enumerate(runs)
                for name in sorted(charts[chart])
                if name in run.series and run.series[name].steps
            ],
        }
        for chart in ranked
    ]


def _chart_of(name: str) -> str:
    first, slash, rest = name.partition("/")
    if not slash:
        return name
    if first in HALVES:
        return rest
    return first if first in FAMILIES else name


def _rank(chart: str) -> int:
    return ORDER.index(chart) if chart in ORDER else len(ORDER)


def _points(series: Series) -> dict[str, Any]:
    points = series.thinned(MOST_POINTS)
    return {
        "x": [step for step, _ in points],
        "y": [None if value is None else float(f"{value:.6g}") for _, value in points],
        "lost": sum(1 for value in series.values if not math.isfinite(value)),
    }


def _summary(runs: list[RecordedRun]) -> str:
    rows = []
    for run in runs:
        axes = ", ".join(f"{axis}={size}" for axis, size in run.axes.items() if size > 1)
        last = run.events[-1]["event"] if run.events else ""
        state = {"end": "ended", "interrupt": "interrupted"}.get(str(last), "no end recorded")
        torn = f", unreadable lines: {run.unreadable}" if run.unreadable else ""
        processes = "1 process" if run.world_size == 1 else f"{run.world_size} processes"
        mesh = axes or "one device"
        rows.append([run.name, processes, mesh, f"{run.last_step:,}", state + torn])
    return _table("Runs", ["run", "processes", "mesh", "steps", "state"], rows)


def _final(runs: list[RecordedRun]) -> str:
    names = sorted({n for run in runs for n, series in run.series.items() if series.steps})
    rows = []
    for name in names:
        row = [name]
        for run in runs:
            series = run.series.get(name)
            row.append(_last(series) if series is not None and series.steps else "")
        rows.append(row)
    return _table("Final values", ["", *(run.name for run in runs)], rows, scrolls=True)


def _last(series: Series) -> str:
    low, high = best(series)
    span = f" ({_short(low)} to {_short(high)})" if low <= high else ""
    return f"{_short(series.values[-1])}{span}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def _config(runs: list[RecordedRun]) -> str:
    heads = ["field", *(run.name for run in runs)]
    if len(runs) == 1:
        rows = [[name, json.dumps(value)] for name, value in runs[0].config.items()]
        return f"<details>{_table('Configuration', heads, rows, tag='summary')}</details>"
    rows = [[name, *values] for name, values in differences(runs).items()]
    if not rows:
        return "<h2>Configuration</h2><p>The same in all runs.</p>"
    return _table("Configuration: what differs", heads, rows, scrolls=True)


def _events(runs: list[RecordedRun]) -> str:
    rows = []
    for run in runs:
        for event in run.events:
            when = event["time"]
            known = isinstance(when, (int, float))
            shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when)) if known else ""
            step = f"at step {event['step']:,}" if isinstance(event["step"], int) else ""
            rows.append([run.name, shown, f"{event['event']} {step}"])
    return _table("Events", ["run", "time", "event"], rows)


def _table(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    tag: str = "h2",
    scrolls: bool = True,
) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "\n".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    inner = f'<div class="scrolls">{table}</div>' if scrolls else table
    return f"<{tag}>{escape(title)}</{tag}>\n{inner}"

"""What a run found, as tables and plots that can be read beside the numbers."""

import json
import statistics

COLORS = ["#2a6fdb", "#d9822b", "#5b8c5a", "#8e5ea2", "#b04a4a", "#5d6d7e", "#999999"]

ABOUT = {
    "replay": "Recorded events through one query, from the first byte to the last row of the result. millrace takes them by HTTP from two senders on the same "
    "cores, durable before they are acknowledged. Flink reads them from files itself, without checkpoints, in a warm JVM (the fastest of two runs after a first "
    "one is counted). Events a second; higher is better.",
    "batch": "TPC-H, scale factor 1, each query until its last row is there. millrace is asked through its wire; DuckDB and DataFusion run in the process that "
    "asks. Milliseconds; lower is better.",
    "ceiling": "Rows a second through a maintained view at a size of batch, beside the same written by hand in differential dataflow, which is in memory and is "
    "given its rows by a loop. Higher is better.",
}


def write(directory):
    """Writes report.md and a plot for each suite from results.json."""
    results = json.loads((directory / "results.json").read_text())
    suites = " ".join(results["suites"])
    lines = [f"# Race ({directory.name})", "", f"    python3 benches/peers/race.py run {suites}", "", "| machine | |", "|---|---|"]
    for name, value in results["machine"].items():
        lines.append(f"| {name} | {value:.2f} |" if isinstance(value, float) else f"| {name} | {value} |")
    lines += ["", "Medians of the turns, and from the least to the most in brackets. What each side does not do: benches/peers/README.md.", ""]
    for suite, found in results["suites"].items():
        lines += [f"## {suite}", "", ABOUT[suite], ""]
        is_rate = suite != "batch"
        lines += table(found, is_rate)
        (directory / f"{suite}.svg").write_text(plot(found, is_rate))
        lines += ["", f"![{suite}]({suite}.svg)", ""]
        lines += faults(found)
    (directory / "report.md").write_text("\n".join(lines) + "\n")


def by_query(found):
    """The measurements of each query and side, in the order in which they came."""
    queries = {}
    for one in found:
        queries.setdefault(one["query"], {}).setdefault(one["side"], []).append(one)
    return queries


def figures(turns, is_rate):
    return [one["events"] / one["seconds"] if is_rate else one["seconds"] * 1000 for one in turns if "seconds" in one]


def table(found, is_rate):
    queries = by_query(found)
    sides = list(dict.fromkeys(one["side"] for one in found))
    first, others = sides[0], [side for side in sides if not side.startswith("millrace")]
    head = ["query", *sides, *(f"{first} / {other}" for other in others)]
    if is_rate:
        head += ["events a processor second", "peak memory, MB"]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    totals = {side: 0.0 for side in sides}
    ratios = {other: [] for other in others}
    for query, measured in queries.items():
        medians, cells = {}, []
        for side in sides:
            values = figures(measured.get(side, []), is_rate)
            if not values:
                cells.append("failed" if side in measured else "")
                continue
            medians[side] = statistics.median(values)
            totals[side] += medians[side]
            spread = f"{shown(min(values), is_rate)} to {shown(max(values), is_rate)}" if len(values) > 1 else "once"
            cells.append(f"{shown(medians[side], is_rate)} ({spread})")
        for other in others:
            if first in medians and other in medians:
                ratio = medians[first] / medians[other]
                ratios[other].append(ratio)
                cells.append(f"{ratio:.2f}")
            else:
                cells.append("")
        if is_rate:
            for what, form in (("processor seconds", lambda one: shown(one["events"] / one["processor seconds"], True)), ("peak MB", lambda one: f"{one['peak MB']:,}")):
                cells.append(", ".join(form(measured[side][-1]) for side in sides if side in measured and what in measured[side][-1]))
        lines.append(f"| {query} | " + " | ".join(cells) + " |")
    geometric = [f"{statistics.geometric_mean(ratios[other]):.2f}" if ratios[other] else "" for other in others]
    if is_rate:
        lines.append("| geometric mean | " + " | ".join([""] * len(sides) + geometric + ["", ""]) + " |")
    else:
        lines.append("| sum | " + " | ".join(shown(totals[side], False) for side in sides) + " | " + " | ".join(f"{totals[first] / totals[other]:.2f}" if totals[other] else "" for other in others) + " |")
        lines.append("| geometric mean | " + " | ".join([""] * len(sides) + geometric) + " |")
    return lines


def shown(value, is_rate):
    if is_rate:
        return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value / 1e3:.0f} k"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def faults(found):
    """What is not as it should be in a run."""
    lines = []
    wrong = sorted({f"{one['query']} of {one['side']}" for one in found if not one.get("right", True)})
    if wrong:
        lines.append("**Wrong answers**: " + "; ".join(wrong) + ".")
    for failed in {f"{one['side']}, {one['query']}: {one['failed']}" for one in found if "failed" in one}:
        lines.append(f"Failed: {failed}.")
    if not lines:
        lines.append("All answers that are compared are right.")
    return [*lines, ""]


def plot(found, is_rate):
    """Bars of the medians, a group for each query, as they are to the first side."""
    queries = by_query(found)
    sides = list(dict.fromkeys(one["side"] for one in found))
    bar, gap, height, top = 12, 14, 220, 40
    width = sum(len(sides) * bar + gap for _ in queries) + 80
    width = max(width, 30 + sum(len(side) * 7 + 30 for side in sides))
    values = {
        (query, side): statistics.median(figures(turns, is_rate)) for query, of in queries.items() for side, turns in of.items() if figures(turns, is_rate)
    }
    most = max(values.values(), default=1)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + top + 60}" font-family="sans-serif" font-size="11">']
    parts.append(f'<rect width="{width}" height="{height + top + 60}" fill="white"/>')
    x = 10
    for side, color in zip(sides, COLORS):
        parts.append(f'<rect x="{x}" y="10" width="10" height="10" fill="{color}"/><text x="{x + 14}" y="19">{side}</text>')
        x += len(side) * 7 + 30
    parts.append(f'<text x="60" y="{top - 6}" text-anchor="end" fill="#555">{"1/s" if is_rate else "ms"}</text>')
    for step in range(5):
        y = top + height - height * step / 4
        parts.append(f'<line x1="60" x2="{width - 10}" y1="{y}" y2="{y}" stroke="#ddd"/><text x="54" y="{y + 4}" text-anchor="end">{shown(most * step / 4, is_rate)}</text>')
    x = 66
    for query in queries:
        middle = x + len(sides) * bar / 2
        for side, color in zip(sides, COLORS):
            value = values.get((query, side), 0)
            tall = height * value / most
            parts.append(f'<rect x="{x}" y="{top + height - tall:.1f}" width="{bar - 2}" height="{tall:.1f}" fill="{color}"><title>{side}, {query}: {shown(value, is_rate)}</title></rect>')
            x += bar
        label = query.replace(", batches of", "")
        parts.append(f'<text x="{middle}" y="{top + height + 14}" text-anchor="end" transform="rotate(-35 {middle} {top + height + 14})">{label}</text>')
        x += gap
    parts.append("</svg>")
    return "\n".join(parts) + "\n"

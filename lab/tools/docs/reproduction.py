"""The tables of docs/reproduction.md, made from results and written into the page.

    python lab/tools/docs/reproduction.py             # write the tables into the page
    python lab/tools/docs/reproduction.py --check     # fail if the page's tables are not those of the results
    python lab/tools/docs/reproduction.py --take table1 rows.json

What is printed in the paper comes from `dpsep_lab.paper`. What was measured comes from
lab/tools/docs/reproduction: a file for each table that was run for the page, and `reported.json` for figures
that other pages report; each of its rows names the page. A cell for which there is no figure says so.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dpsep_lab.paper.printed import TABLE_1
from dpsep_lab.paper.printed_networks import (
    CLIPS,
    COLUMNS,
    DATASETS,
    DPVI_SETTINGS,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_5,
    TABLE_8,
    TABLE_9,
    VI_SETTINGS,
)

HERE = Path(__file__).resolve().parent / "reproduction"
PAGE = HERE.parents[3] / "docs" / "reproduction.md"
BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
MISSING = "missing"
NO_RELATION = "not private"
NOTHING = "none to account"
"""In a cell for noise where there is none."""
KEPT = (
    "table",
    "row",
    "source",
    "dataset",
    "method",
    "epsilon",
    "relation",
    "metric",
    "mean",
    "median",
    "n",
    "count",
)
"""What is kept of a row."""

Row = dict[str, Any]


def load(name: str) -> Any:
    """Return a result; none where the table was not run."""
    path = HERE / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def pick(rows: Iterable[Row], **wanted: Any) -> Row | None:
    """Return the row that has these values, or None."""
    return next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), None)


def number(value: float) -> str:
    """Return three digits of a number, four where it is near one."""
    return f"{value:.4g}" if 0.1 <= abs(value) < 10 else f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def accounting() -> str:
    """Noise that each printed epsilon needs, and what the accounted noise really gives."""
    rows, lines = load("accounting"), []
    for name in dict.fromkeys(row["row"] for row in rows):
        found = [row["mean"] for row in rows if row["row"] == name]
        lines.append([name, *map(number, found)])
    head = ["setting", "sigma as accounted", "sigma as written", "epsilon of the accounted sigma, as written"]
    return table([*head, "sigma ours, zero-out", "sigma ours, replace-one"], lines)


def table1() -> str:
    """Average error of the mixture's posterior, by row and source."""
    rows, lines = load("table1"), []
    for line in TABLE_1:
        name = line.method
        if line.epsilon is not None:
            name = f"{line.method}, epsilon = {line.epsilon:g}"
        elif line.clip is not None:
            name = f"SEP clipped, C = {line.clip:g}"
        own = "SEP clipped" if name.startswith("SEP clipped") else name
        private = line.epsilon is not None
        relation = "replace-one" if private else "none"
        cases = [
            ("as written", relation),
            ("as accounted", relation),
            ("ours", "zero-out" if private else relation),
        ]
        cells = [_error(rows, name if source != "ours" else own, source, which) for source, which in cases]
        last = _error(rows, own, "ours", "replace-one") if private else NO_RELATION
        lines.append([name, number(line.average), *cells, last])
    return table(
        ["row", "printed", "as written", "as accounted", "ours, zero-out", "ours, replace-one"], lines
    )


def _error(rows: list[Row], name: str, source: str, relation: str) -> str:
    row = pick(rows, row=name, source=source, relation=relation, metric="F-norm, average")
    if row is None:
        return NOTHING if source == "as accounted" and relation == "none" else MISSING
    return f"{number(row['mean'])} (median {number(row['median'])})"


def figure1() -> str:
    """Error of each panel."""
    return table(
        ["panel", "average error"],
        [[_plain(row["panel"]), number(row["average F-norm"])] for row in load("figure1")],
    )


def _plain(text: str) -> str:
    return text.replace(r"$\epsilon$", "epsilon")


def table2() -> str:
    """Sizes of the data sets."""
    rows, lines = load("table2"), []
    for name, printed in TABLE_2.items():
        found = [pick(rows, dataset=name, row=row) for row in ("records", "features", "splits")]
        lines.append(
            [name, *map(str, printed), *(MISSING if row is None else f"{row['mean']:.0f}" for row in found)]
        )
    return table(["set", "records, printed", "features, printed", "records", "features", "splits"], lines)


def tables3and4() -> str:
    """Test RMSE and log-likelihood of every method on every set."""
    rows, lines = load("reported"), []
    for name in DATASETS:
        for place, column in enumerate(COLUMNS):
            printed = f"{TABLE_3[name][place].mean:g} / {TABLE_4[name][place].mean:g}"
            relation = "replace-one" if column.startswith("DP-") else "none"
            written = [
                _scores(rows, name, column, source, relation) for source in ("as written", "as accounted")
            ]
            if relation == "none":
                ours = [_scores(rows, name, column, "ours", "none"), NO_RELATION]
            else:
                ours = [_scores(rows, name, column, "ours", which) for which in ("zero-out", "replace-one")]
            if relation == "none":
                written[1] = NOTHING
            lines.append([name if place == 0 else "", column, printed, *written, *ours])
    head = ["set", "method", "printed", "as written", "as accounted", "ours (zero-out)", "ours, replace-one"]
    return table(head, lines)


def _scores(rows: list[Row], dataset: str, row: str, source: str, relation: str) -> str:
    wanted = {"dataset": dataset, "row": row, "source": source, "relation": relation}
    found = [pick(rows, table=name, **wanted) for name in ("table3", "table4")]
    if found[0] is None:
        other = (
            pick(rows, table="table3", **wanted | {"relation": "zero-out"})
            if source == "as written"
            else None
        )
        return MISSING if other is None else f"{number(other['mean'])} / {MISSING} ({other['n']}, zero-out)"
    count = found[0]["n"]
    texts = [number(one["mean"]) if one else MISSING for one in found]
    return f"{texts[0]} / {texts[1]} ({count})"


def table5() -> str:
    """Point estimates beside DP-SEP."""
    rows = load("table5")
    reported = load("reported")
    lines = []
    for name, (point, private) in TABLE_5.items():
        mine = pick(rows, dataset=name, row="point estimate", source="ours")
        noisy = pick(rows, dataset=name, row="DP point estimate", source="ours", relation="zero-out")
        wanted = {"dataset": name, "row": "DP-SEP", "source": "ours", "relation": "zero-out"}
        # The same splits as the point estimates', where they were run.
        sep = pick(rows, **wanted) or pick(reported, table="table3", **wanted)
        cells = [
            MISSING if row is None else f"{number(row['mean'])} ({row['n']})" for row in (mine, noisy, sep)
        ]
        lines.append([name, f"{point.mean:g}", f"{private.mean:g}", *cells])
    head = [
        "set",
        "point estimate, printed",
        "DP-SEP, printed",
        "point estimate, ours",
        "private point estimate, ours",
    ]
    return table([*head, "DP-SEP, ours"], lines)


def tables6and7() -> str:
    """Settings as printed, and the epsilon that those of DP-VI give."""
    rows = load("table7")
    kinds = [
        ("epsilon, Poisson batches", "zero-out"),
        ("epsilon, Poisson batches", "replace-one"),
        ("epsilon, shuffled passes", "zero-out"),
        ("epsilon, shuffled passes", "replace-one"),
    ]
    lines = []
    for name in DATASETS:
        private, plain = DPVI_SETTINGS[name], VI_SETTINGS[name]
        found = [pick(rows, dataset=name, row=row, relation=relation) for row, relation in kinds]
        cells = [MISSING if row is None else number(row["mean"]) for row in found]
        shown = f"{private.epochs} / {private.batch_size} / {private.clip:g} / {private.sigma:g}"
        lines.append(
            [name, f"{plain.epochs} / {plain.batch_size} / {plain.learning_rate:g}", shown, "1", *cells]
        )
    head = ["set", "VI: epochs / batch / rate", "DP-VI: epochs / batch / C / sigma", "epsilon, printed"]
    return table([*head, *(f"{row.split(', ')[1]}, {relation}" for row, relation in kinds)], lines)


def tables8and9() -> str:
    """DP-SEP by clip norm: all sets as printed, wine as written and as accounted."""
    rows, lines = load("reported"), []
    for place, clip in enumerate(CLIPS):
        printed = [f"{TABLE_8[name][place].mean:g} / {TABLE_9[name][place].mean:g}" for name in DATASETS]
        found = [
            pick(rows, table="table8", dataset="wine", row=f"C = {clip:g}", source=source)
            for source in ("as written", "as accounted")
        ]
        cells = [MISSING if row is None else f"{number(row['mean'])} ({row['n']})" for row in found]
        lines.append([f"{clip:g}", *printed, *cells])
    head = [
        "C",
        *(f"{name}, printed" for name in DATASETS),
        "wine as written, RMSE",
        "wine as accounted, RMSE",
    ]
    return table(head, lines)


def theorem() -> str:
    """Findings of the run."""
    return "\n".join(f"- {line}" for line in load("theorem")["findings"]) + "\n"


MADE: dict[str, Callable[[], str]] = {
    make.__name__: make
    for make in (
        *(accounting, table1, figure1, table2, tables3and4),
        *(table5, tables6and7, tables8and9, theorem),
    )
}


def render(text: str) -> str:
    """Return the page with its tables made anew."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{MADE[match[2]]()}\n{match[3]}", text)


def main() -> None:
    """Write the page, check it, or keep a result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if the page is not up to date")
    parser.add_argument("--take", nargs=2, metavar=("TABLE", "FILE"), help="keep the rows of a new run")
    options = parser.parse_args()
    if options.take:
        name, path = options.take
        rows = [{key: row[key] for key in KEPT if key in row} for row in json.loads(Path(path).read_text())]
        kept = [row for row in rows if row["source"] != "printed" and row.get("mean") is not None]
        (HERE / f"{name}.json").write_text("[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n")
    text = PAGE.read_text(encoding="utf-8")
    made = render(text)
    if options.check:
        sys.exit("docs/reproduction.md is not what its results give." if made != text else 0)
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()

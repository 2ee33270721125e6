"""``dpsep paper``: tables and figures of the paper, as printed, as written, as accounted, and ours."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsep.cli.errors import CallError
from dpsep.cli.screen import number, print_table, progress, remark, say, write_json

if TYPE_CHECKING:
    from dpsep_lab.paper.fits import Store

__all__ = ["TABLES", "run"]

Rows = list[dict[str, Any]]
QUICK_SEEDS, QUICK_PASSES = 2, 5
"""Size of a quick run: enough to see that everything works, too small to compare."""


class Options(NamedTuple):
    """What a call asks for.

    Attributes
    ----------
    out
        Folder for pictures, network tables and their finished fits.
    seeds
        Number of made data sets.
    datasets, splits
        Of the network tables: which sets, and how many splits of each.
    quick
        A small run.
    store
        Finished fits of the network tables.
    """

    out: Path | None
    seeds: int | None
    datasets: tuple[str, ...] | None
    splits: int | None
    quick: bool
    store: "Store"


def run(
    table: str,
    json_path: Path | None,
    out: Path | None,
    seeds: int | None,
    *,
    datasets: str | None = None,
    splits: int | None = None,
    quick: bool,
) -> None:
    """Make tables and figures, print them, and write all rows to a file if one is named."""
    from dpsep_lab.paper.fits import Store

    if table not in (*TABLES, "all"):
        raise CallError(f"there is no table {table!r}; there are {', '.join(TABLES)}, or all.")
    for name, count in (("--seeds", seeds), ("--splits", splits)):
        if count is not None and count < 1:
            raise CallError(f"{name} must be at least 1, not {count}.")
    names = None if datasets is None else tuple(part.strip() for part in datasets.split(",") if part.strip())
    if names is not None:
        _check_datasets(names)
    chosen = TABLES if table == "all" else (table,)
    store = Store(out / "fits" if out is not None and any(name in NETWORKS for name in chosen) else None)
    options = Options(out, seeds, names, splits, quick, store)
    rows: Rows = []
    for name in chosen:
        rows += TABLES[name](options)
    if json_path is not None:
        write_json(rows, json_path)


def _check_datasets(names: tuple[str, ...]) -> None:
    from dpsep_lab.paper.printed_networks import DATASETS

    for name in names or ("",):
        if name not in DATASETS:
            raise CallError(f"--datasets: there is no data set {name!r} in the paper; {', '.join(DATASETS)}.")


def _accounting(options: Options) -> Rows:
    from dpsep_lab.paper import accounting

    rows = accounting.rows(("mixture",) if options.quick else None)
    cells = [
        [row["row"], row["source"], row["method"], row["relation"], row["metric"], number(row["mean"])]
        for row in rows
    ]
    header = ["setting", "source", "mechanism", "relation", "metric", "value"]
    print_table("Noise (over the clip) behind the paper's epsilons, delta = 1e-5", header, cells)
    return rows


def _table1(options: Options) -> Rows:
    from dpsep_lab.paper import table1

    quick = options.quick
    count = options.seeds or (QUICK_SEEDS if quick else table1.SEEDS)
    passes = QUICK_PASSES if quick else table1.PASSES
    with progress("Table 1") as report:
        rows = table1.rows(range(count), passes, on_step=report)
    rows = [{key: _plain(value) for key, value in row.items()} for row in rows]
    _print_errors(rows, count)
    _print_pairs(rows)
    if quick:
        remark(
            f"A quick run: {count} data sets and {passes} passes of Algorithm 3. Leave out --quick for all."
        )
    return rows


def _figure1(options: Options) -> Rows:
    from dpsep_lab.paper import figure1, table1

    path = (options.out or Path()) / "figure1.png"
    passes = QUICK_PASSES if options.quick else table1.PASSES
    with progress("Figure 1") as report:
        rows = figure1.draw(path, passes=passes, on_step=report)
    cells = [[row["panel"].replace(r"$\epsilon$", "epsilon"), number(row["average F-norm"])] for row in rows]
    print_table("Figure 1: average F-norm of each panel", ["panel", "average F-norm"], cells)
    remark(f"written: {path}")
    return rows


def _network(name: str) -> Callable[[Options], Rows]:
    def make(options: Options) -> Rows:
        from dpsep_lab.paper import network_command

        return network_command.run(
            name, options.datasets, options.splits, options.store, options.out, quick=options.quick
        )

    return make


def _theorem(options: Options) -> Rows:
    from dpsep_lab.paper import theorem, theorem_report

    with progress("Theorem 4.1") as report:
        rows = theorem.rows(quick=options.quick, on_step=report)
    say("Theorem 4.1 and the claims around it: what was found")
    for line in theorem_report.summary(rows):
        say(f"- {line}")
    for path in theorem_report.write(options.out or Path(), rows, quick=options.quick):
        remark(f"written: {path}")
    if options.quick:
        remark("A quick run: few cases and draws, one dimension. Leave out --quick for all.")
    return rows


NETWORKS = tuple(f"table{number}" for number in range(2, 10))
"""Tables of network experiments."""
TABLES: dict[str, Callable[[Options], Rows]] = {
    "accounting": _accounting,
    "table1": _table1,
    "figure1": _figure1,
    **{name: _network(name) for name in NETWORKS},
    "theorem": _theorem,
}
"""What can be made."""


def _print_errors(rows: Rows, count: int) -> None:
    """One line a row and source: the three F-norms by mean and median, the worst, and wrong assignments."""
    lines: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    order = {row["row"]: place for place, row in reversed(list(enumerate(rows)))}
    for row in sorted(rows, key=lambda row: order[row["row"]]):
        if "paired" not in row["metric"]:
            key = (row["row"], row["source"], row["method"], row["relation"])
            lines.setdefault(key, {})[row["metric"]] = row
    cells = []
    for (name, source, method, relation), found in lines.items():
        mean, covariance, average = (found[f"F-norm, {part}"] for part in ("mean", "covariance", "average"))
        right = found.get("F-norm, average, correctly assigned", {}).get("mean")
        wrong = found.get("wrong assignments", {}).get("count")
        label = source if "really" not in method else f"{source}, {method.split(', ')[-1]}"
        figures = [
            mean["mean"],
            covariance["mean"],
            average["mean"],
            average["median"],
            right,
            average["worst"],
        ]
        cells.append([name, label, relation, *map(_figure, figures), "" if wrong is None else str(wrong)])
    header = [
        "row",
        "source",
        "relation",
        "mean part",
        "covariance",
        "average",
        "median",
        "if right",
        "worst",
    ]
    title = f"Table 1: squared F-norm against the labelled posterior, {count} data sets, delta = 1e-5"
    print_table(title, [*header, "wrong"], cells)


def _print_pairs(rows: Rows) -> None:
    pairs = [row for row in rows if "paired" in row["metric"]]
    cells = [
        [row["row"], f"{row['epsilon']:g}", row["relation"], *map(_figure, _interval(row))] for row in pairs
    ]
    header = ["difference of average F-norm", "epsilon", "relation", "mean", "low", "high", "median"]
    print_table("The same data sets, starts, gate and accountant: paired, 95 % interval", header, cells)


def _interval(row: dict[str, Any]) -> Sequence[float | None]:
    return row["mean"], row["low"], row["high"], row["median"]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value

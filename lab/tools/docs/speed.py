"""The tables of docs/speed.md, made from the rows that are kept, and its pictures.

    python lab/tools/docs/speed.py                        # write the tables into the page, draw the pictures
    python lab/tools/docs/speed.py --check  # fail if the page's tables are not those of the rows
    python lab/tools/docs/speed.py --take rows.json  # keep what `dpsep bench speed --json` wrote, then write
    python lab/tools/docs/speed.py --gpu speed_gpu.json   # keep what lab/tools/speed_gpu.py wrote, then write

Rows are kept in docs/benchmarks/speed.json and docs/benchmarks/speed_gpu.json. A target for which there is no
row says so. What is written between the tables is by hand.
"""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "speed.md"
KEPT = ROOT / "docs" / "benchmarks"
BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
MISSING = "not measured"
ONE, TWO = "speed/1 core", "speed/2 cores"
FIT = "speed/fit, 2 cores, declared scaling"
GATE = "DP-SEP, batches, secure noise, gate"
KERNEL = "DP-SEP, batches, secure noise, no gate, kernel"
OURS = "dpsep private, defaults"
FLAT = 1.5
"""Largest over smallest cost of a record that counts as flat."""

Row = dict[str, Any]


class Target(NamedTuple):
    """A target: what is asked, the figure, and whether it is met (None: only to be reported)."""

    what: str
    wanted: str
    figure: str
    met: str


def load(name: str) -> list[Row]:
    """Return the rows that are kept; none where nothing was run."""
    path = KEPT / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def pick(rows: Iterable[Row], **wanted: Any) -> Row | None:
    """Return the first row that has these values and a figure, or None."""
    return next(
        (
            row
            for row in rows
            if row["value"] is not None and all(row.get(key) == value for key, value in wanted.items())
        ),
        None,
    )


def number(value: float) -> str:
    """Return three digits of a number, thousands in full.

    Examples
    --------
    >>> number(153_012.3), number(0.01234), number(2.0)
    ('153,000', '0.0123', '2')
    """
    if abs(value) >= 1000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def targets() -> str:
    """Every target beside its figure."""
    rows, gpu = load("speed"), load("speed_gpu")
    found = [*rate_targets(rows), *fit_targets(rows, gpu), *start_targets(rows), *growth_targets(rows)]
    return table(["target", "wanted", "measured", "met"], found)


def rate_targets(rows: list[Row]) -> list[Target]:
    """Targets in records a second, on one core."""
    one = [row for row in rows if row["case"] == ONE and row["metric"] == "speed"]
    plain = _fastest(one, "SEP, one record a step")
    batch = _fastest(one, "DP-SEP, batches, secure noise")
    gate = _fastest(one, GATE)
    floats = _fastest(one, "DP-SEP, one record a step, float noise")
    secure = _fastest(one, "DP-SEP, one record a step, secure noise")
    shares = [
        row for row in rows if row["case"] == "speed/shares, 1 core" and row["metric"] == "secure noise"
    ]
    share, alone = (pick(shares, who=who) for who in (GATE, KERNEL))
    return [
        _ratio("sequential SEP, times HIPS C", 3.0, plain, "hips"),
        _ratio("batch DP-SEP, exact factors, clip, secure noise, times HIPS C", 8.0, batch, "hips"),
        _ratio("the same, times Opacus with index batches", 4.0, batch, "ratio"),
        _ratio("the same, floor over measured", 3.5, batch, "over_floor", most=True),
        _ratio("the same through the gate of a real fit, times HIPS C", 8.0, gate, "hips"),
        _below("secure noise, share of a batch step through the gate", 0.2, share, "value"),
        _below("secure noise, share of a batch step of the compiled kernel", 0.2, alone, "value"),
        _ratio("one-record private mode, float noise (not for release), times HIPS C", 0.8, floats, "hips"),
        Target(
            "one-record private mode, secure noise",
            "reported",
            _secure(secure, _fastest(one, "DP-SEP, one record a step, secure noise, gate")),
            "reported" if secure else MISSING,
        ),
    ]


def _secure(fastest: Row | None, gate: Row | None) -> str:
    """The fastest form, which has no gate, and a real private fit beside it."""
    if fastest is None:
        return MISSING
    through = MISSING if gate is None else f"{number(gate['value'])}"
    return f"{number(fastest['value'])} records/s (kernel, no gate); {through} in a fit through the gate"


def fit_targets(rows: list[Row], gpu: list[Row]) -> list[Target]:
    """Targets of whole fits."""
    case = "speed/gpu, fit, kin8nm's shape"
    years = [row for row in gpu if row["case"].startswith("speed/gpu, year")]
    return [
        _fit(
            "full private kin8nm fit (defaults) after import, 2 cores",
            5.0,
            pick(rows, case=FIT, who=OURS, metric="first fit"),
            pick(rows, case=FIT, who=OURS, metric="later fits"),
        ),
        _fit(
            "full private kin8nm fit (defaults) after import, H200",
            1.0,
            pick(gpu, case=case, metric="first fit"),
            pick(gpu, case=case, metric="later fits"),
        ),
        _fit(
            "Year's shape, 40 expected passes, H200",
            60.0,
            pick(years, metric="first fit"),
            pick(years, metric="second fit"),
        ),
    ]


def start_targets(rows: list[Row]) -> list[Target]:
    """Targets of imports and the command line."""
    found = []
    for who, limit in (("import dpsep", 1.5), ("dpsep --help", 0.5)):
        row = pick(rows, case="speed/startup", who=who)
        target = _below(f"`{who}`", limit, row, "value", unit=" s")
        if row is not None:
            target = target._replace(figure=f"{target.figure} ({number(row['cpu'])} s of work)")
        found.append(target)
    return found


def growth_targets(rows: list[Row]) -> list[Target]:
    """Targets of growth."""
    found = []
    for who in ("full release", "sampled release"):
        grown = [row for row in _growth(rows, "records") if row["who"] == who]
        name = f"cost a record flat from N = 10^3 to 10^7, {who}: largest over smallest"
        if not grown:
            found.append(Target(name, f"at most {FLAT:g}", MISSING, MISSING))
            continue
        ratio = max(row["value"] for row in grown) / min(row["value"] for row in grown)
        span = f"{number(min(row['size'] for row in grown))} to {number(max(row['size'] for row in grown))}"
        whole = min(row["size"] for row in grown) <= 10**3 and max(row["size"] for row in grown) >= 10**7
        verdict = _verdict(ratio <= FLAT) if whole else f"measured from {span} only"
        found.append(Target(name, f"at most {FLAT:g}", number(ratio), verdict))
    for what in ("width", "depth", "features", "batch"):
        sizes = sorted({row["size"] for row in _growth(rows, what)})
        span = MISSING if not sizes else f"{sizes[0]} to {sizes[-1]}, in the picture"
        found.append(Target(f"time against {what}, as a plot", "reported", span, _reported(bool(sizes))))
    return found


def _fastest(rows: list[Row], start: str) -> Row | None:
    """The fastest row whose name begins like this."""
    found = [row for row in rows if row["who"].startswith(start) and row["value"] is not None]
    return max(found, key=lambda row: row["value"], default=None)


def _ratio(what: str, wanted: float, row: Row | None, key: str, *, most: bool = False) -> Target:
    limit = f"at {'most' if most else 'least'} {wanted:g}"
    if row is None or row.get(key) is None:
        return Target(what, limit, MISSING, MISSING)
    good = row[key] <= wanted if most else row[key] >= wanted
    figure = f"{number(row[key])} ({row['who']}, {row['digits']} bits, {_spread(row)} records/s)"
    return Target(what, limit, figure, _verdict(good))


def _spread(row: Row) -> str:
    """A median, and the standard deviation over turns."""
    sd = row.get("sd")
    return number(row["value"]) if sd is None else f"{number(row['value'])} ± {number(sd)}"


def _below(what: str, limit: float, row: Row | None, key: str, unit: str = "") -> Target:
    wanted = f"at most {limit:g}{unit}"
    if row is None:
        return Target(what, wanted, MISSING, MISSING)
    return Target(what, wanted, f"{number(row[key])}{unit}", _verdict(row[key] <= limit))


def _fit(what: str, limit: float, first: Row | None, later: Row | None) -> Target:
    wanted = f"under {limit:g} s"
    if first is None:
        return Target(what, wanted, MISSING, MISSING)
    figure = f"{number(first['value'])} s, compilation included"
    if later is not None:
        figure += f"; {number(later['value'])} s once compiled"
    if first["value"] < limit:
        return Target(what, wanted, figure, "met")
    compiled = later is not None and later["value"] < limit
    return Target(what, wanted, figure, "once compiled only" if compiled else "**not met**")


def _verdict(good: bool) -> str:
    return "met" if good else "**not met**"


def _reported(there: bool) -> str:
    return "reported" if there else MISSING


def _growth(rows: Iterable[Row], what: str) -> list[Row]:
    return [row for row in rows if row["case"].startswith("speed/growth") and row["metric"] == what]


def machine() -> str:
    """The machine, its versions and the size of the run."""
    rows, gpu = load("speed"), load("speed_gpu")
    lines = [
        [f"{row['who']}, {row['metric']}", str(row["value"])]
        for row in rows
        if row["case"] in ("about", "speed/about") and row["value"] is not None
    ]
    turns = sorted({row["n"] for row in rows if row["case"] == ONE and row.get("n")})
    lines += [["turns that medians are over", ", ".join(map(str, turns))]] if turns else []
    for row in gpu:
        if row["case"] == "speed/gpu, about" and row["metric"] in ("device", "version", "cores"):
            lines.append([f"accelerator's machine: {row['who']}, {row['metric']}", str(row["value"])])
    return table(["what", "which"], lines) if lines else f"{MISSING}\n"


def rates() -> str:
    """Records a second of everyone, on one core and on two."""
    rows = load("speed")
    one = [row for row in rows if row["case"] == ONE and row["metric"] == "speed"]
    one.sort(key=lambda row: -row["value"])
    lines = []
    for row in one:
        other = pick(rows, case=TWO, metric="speed", who=row["who"], digits=row["digits"])
        cells = [row["who"], str(row["digits"]), _spread(row)]
        cells += [_or(row, key) for key in ("hips", "ratio", "over_floor")]
        cells += [number(row["first_call"]), MISSING if other is None else number(other["value"])]
        lines.append(cells)
    lost = [row for row in rows if row["case"] == ONE and row["metric"] == "skipped"]
    lines += [[row["who"], "", row["note"], "", "", "", "", ""] for row in lost]
    head = ["who", "bits", "records/s, 1 core", "times HIPS C", "times Opacus", "floor over measured"]
    return table([*head, "first call, s", "records/s, 2 cores"], lines)


def _or(row: Row, key: str) -> str:
    value = row.get(key)
    return "" if value is None else number(value)


def floor() -> str:
    """What the machine can do, and what a record needs."""
    rows = [row for row in load("speed") if row["case"] == ONE and row["who"].startswith("machine")]
    names = list(dict.fromkeys(row["metric"] for row in rows))
    lines = [[name, *(number(row["value"]) for row in rows if row["metric"] == name)] for name in names]
    return table(["a second, 1 core", "32 bits", "64 bits"], lines) if lines else f"{MISSING}\n"


def shares() -> str:
    """Where a step's time goes."""
    rows = [row for row in load("speed") if row["case"] == "speed/shares, 1 core"]
    lines = []
    for row in rows:
        figure = f"{100 * row['value']:.1f} %" if row["unit"] == "share" else f"{1e3 * row['value']:.3g} ms"
        lines.append([row["who"], row["metric"], figure])
    return table(["who", "part", "share, or time"], lines) if lines else f"{MISSING}\n"


def fits() -> str:
    """Whole fits: seconds and memory."""
    rows = [row for row in load("speed") if row["case"].startswith("speed/fit,") and row["value"] is not None]
    rows += [
        row for row in load("speed_gpu") if row["case"].startswith(("speed/gpu, fit", "speed/gpu, year"))
    ]
    lines = []
    for row in rows:
        work = f"{number(row['cpu'])} s" if row.get("cpu") is not None else ""
        lines.append(
            [row["case"].removeprefix("speed/"), row["metric"], f"{number(row['value'])} {row['unit']}", work]
        )
    return table(["case", "what", "figure", "work of all threads"], lines) if lines else f"{MISSING}\n"


def reached() -> str:
    """Seconds and error of private methods on one table."""
    rows = [row for row in load("speed") if row["case"].startswith("speed/reached")]
    lines = []
    for row in rows:
        if row["value"] is None:
            lines.append([row["who"], row["note"], "", ""])
            continue
        lines.append([row["who"], *(number(row[key]) for key in ("first", "value", "rmse"))])
    return table(["who", "first fit, s", "later fit, s", "test RMSE"], lines) if lines else f"{MISSING}\n"


def startup() -> str:
    """Imports and the command line."""
    rows = [row for row in load("speed") if row["case"] == "speed/startup" and row["value"] is not None]
    lines = [[f"`{row['who']}`", number(row["value"]), number(row["cpu"])] for row in rows]
    return table(["process", "seconds", "seconds of work"], lines) if lines else f"{MISSING}\n"


def accelerator() -> str:
    """Records a second on the accelerator."""
    rows = [row for row in load("speed_gpu") if row["case"] == "speed/gpu, rates"]
    lines = [[row["who"], str(row["digits"]), number(row["value"])] for row in rows]
    return table(["who", "bits", "records/s"], lines) if lines else f"{MISSING}\n"


MADE: dict[str, Callable[[], str]] = {
    make.__name__: make
    for make in (targets, machine, rates, floor, shares, fits, reached, startup, accelerator)
}


def render(text: str) -> str:
    """Return the page with its tables made anew."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{MADE[match[2]]()}\n{match[3]}", text)


def main() -> None:
    """Write the page and its pictures, or check the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if the page is not up to date")
    parser.add_argument("--take", metavar="FILE", type=Path, help="keep the rows of a new run")
    parser.add_argument("--gpu", metavar="FILE", type=Path, help="keep the rows of a run on an accelerator")
    options = parser.parse_args()
    for path, name in ((options.take, "speed"), (options.gpu, "speed_gpu")):
        if path is not None:
            shutil.copyfile(path, KEPT / f"{name}.json")
    text = PAGE.read_text(encoding="utf-8")
    made = render(text)
    if options.check:
        sys.exit("docs/speed.md is not what its rows give." if made != text else 0)
    PAGE.write_text(made, encoding="utf-8")
    import speed_plots

    speed_plots.draw(load("speed"), load("speed_gpu"), KEPT)


if __name__ == "__main__":
    main()

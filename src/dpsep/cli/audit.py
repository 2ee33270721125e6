"""`dpsep audit`: attack the library, or an estimator of your own, and print what was proved."""

import math
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import typer

from dpsep.cli import laboratory
from dpsep.cli.errors import DONE, FAILED, CallError
from dpsep.cli.screen import number, print_table, progress, remark, say, write_json

__all__ = ["run"]


def run(
    names: Sequence[str],
    epsilons: str,
    *,
    attacks: Sequence[str],
    controls: bool,
    only: bool,
    matrix: str | None,
    quick: bool,
    scale: float,
    jobs: int | None,
    json_path: Path | None,
    plot: Path | None,
) -> None:
    """Attack targets and print the table; exit code 1 if one is caught, or a control is not."""
    from dpsep.audit.targets import targets
    from dpsep.audit.work import ATTACKS, find_target, run_all
    from dpsep.privacy.checkpoint import atomic_write

    claims = _numbers(epsilons)
    unknown = [one for one in attacks if one not in ATTACKS]
    if unknown:
        raise CallError(f"there is no attack {unknown[0]!r}; there are {', '.join(ATTACKS)}.")
    if matrix not in (None, "pairs", "all"):
        raise CallError(f"--matrix takes pairs or all, not {matrix!r}.")
    if only and not (controls or matrix):
        raise CallError("--only needs --controls or --matrix: there is nothing else to do.")
    chosen = [] if only else list(names) or list(targets())
    for name in chosen:
        find_target(name)
    more = [
        *(laboratory.part("controls", "--controls")() if controls else ()),
        *(laboratory.part("matrix", "--matrix")(matrix) if matrix is not None else ()),
    ]
    rows: list[dict[str, Any]] = []
    with progress("audit") as report:
        for done, total, row in run_all(
            chosen,
            claims,
            attacks=attacks or ATTACKS,
            more=more,
            scale=0.1 * scale if quick else scale,
            jobs=jobs,
        ):
            rows.append(row)
            report(done, total)
    rows.sort(key=lambda row: (row["target"].startswith("control"), row["target"], row["attack"]))
    _show(rows)
    if json_path is not None:
        write_json(rows, json_path)
    if plot is not None:
        atomic_write(plot, _picture(rows))
    raise typer.Exit(_verdict(rows))


def _numbers(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < value < math.inf for value in found):
        raise CallError(f"--epsilon takes positive numbers with commas between them, not {text!r}.")
    return found


def _show(rows: Sequence[dict[str, Any]]) -> None:
    attacks = [row for row in rows if "false_alarm" not in row and "outcome" not in row]
    _show_matrix([row for row in rows if "outcome" in row])
    controls = [row for row in rows if "false_alarm" in row]
    if attacks:
        header = ("target", "attack", "claimed", "proved", "confidence", "power", "caught", "what was done")
        print_table(
            "Lower bounds on epsilon",
            header,
            [
                (
                    row["target"],
                    row["attack"],
                    number(row["claimed"]),
                    "" if row["lower_bound"] is None else number(row["lower_bound"]),
                    "" if row["confidence"] is None else f"{row['confidence']:.1%}",
                    "" if row.get("power") is None else f"{row['power']:.0%}",
                    "CAUGHT" if row["caught"] else "no",
                    row["evidence"],
                )
                for row in attacks
            ],
        )
        remark(
            "proved: epsilon is at least this. power: chance that this audit would have found half the noise."
        )
    if controls:
        print_table(
            "Controls: the library broken on purpose",
            ("what is broken", "test", "caught", "evidence"),
            [
                (
                    row["target"].removeprefix("control: "),
                    row["attack"],
                    "caught" if row["caught"] else "NOT CAUGHT",
                    row["evidence"] if row["false_alarm"] is None else f"FALSE ALARM: {row['false_alarm']}",
                )
                for row in controls
            ],
        )


def _show_matrix(rows: Sequence[dict[str, Any]]) -> None:
    """Print how many combinations of each estimator were kept, refused and caught, and those caught."""
    names = dict.fromkeys(row["target"].partition(":")[0] for row in rows)
    counts = []
    for name in names:
        own = [row["outcome"] for row in rows if row["target"].partition(":")[0] == name]
        counts.append((name, *(str(own.count(outcome)) for outcome in ("kept", "refused", "caught"))))
    if counts:
        print_table("Record and replay over options", ("estimator", "kept", "refused", "caught"), counts)
    for row in rows:
        if row["caught"]:
            say(f"CAUGHT {row['target']}: {row['evidence']}")


def _verdict(rows: Sequence[dict[str, Any]]) -> int:
    """Done, if nothing that is whole was caught and all that is broken was."""
    attacks = all(not row["caught"] for row in rows if "false_alarm" not in row)
    controls = all(row["caught"] and row["false_alarm"] is None for row in rows if "false_alarm" in row)
    return DONE if attacks and controls else FAILED


def _picture(rows: Sequence[dict[str, Any]]) -> bytes:
    from dpsep.report.audits import plot_audit

    figure = plot_audit(rows).figure
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    return buffer.getvalue()

"""Claimed and proved: what canaries prove about fits, and about one that claims less than it costs."""

from pathlib import Path
from typing import Any

from common import Measured, Picture, main, new_figure, save, say

from dpsep.audit.work import attack
from dpsep.report.audits import plot_audit

PICTURE = Picture(
    name="audited",
    title="Claimed and proved",
    see=(
        "Each dot is an epsilon that an attack with planted records proved a fit to have at least, with "
        "99.9 % confidence; the grey mark is what the fit claims. No dot is right of its mark, but for the "
        "control: a fit that claims epsilon {false:g} and spends {spent:g} is proved to spend {proved:.2f}."
    ),
    made=(
        "`dpsep audit`, canaries only, at {scale:g} of its usual size: {trials:,} trials in all, runs seeded "
        "from 0 on, made tables of 16 records, delta 0.01. The control is the linear fit at epsilon "
        "{spent:g}, held against a claim of {false:g}."
    ),
    alt=(
        "A chart with one line for each audited fit: linear, logistic and mixture at epsilon 1 and 4, and a "
        "control. Blue dots lie left of the grey marks of the claims; the orange dot of the control lies "
        "right of its mark."
    ),
    still="audited.png",
)
TARGETS = ("linear", "logistic", "mixture")
CLAIMS = (1.0, 4.0)
CONTROL = "spends 4 but claims 1 (linear)"


def measure(quick: bool, folder: Path) -> Measured:
    """Attack small fits with planted records."""
    del folder
    scale = 0.02 if quick else 0.5
    rows: list[dict[str, Any]] = []
    trials = 0
    for name in TARGETS[:1] if quick else TARGETS:
        for claim in CLAIMS:
            row = attack(name, "canary", claim, scale)
            trials += row["trials"]
            keys = ("target", "attack", "claimed", "lower_bound", "confidence", "caught")
            rows.append({key: row[key] for key in keys} | {"claimed": claim, "caught": bool(row["caught"])})
            say(f"  {name}, epsilon {claim:g}: at least {row['lower_bound']:.2f}")
    proved = rows[1]["lower_bound"]
    liar = {"target": CONTROL, "claimed": CLAIMS[0], "caught": bool(proved > CLAIMS[0])}
    caption = {"false": CLAIMS[0], "spent": CLAIMS[1], "proved": proved, "scale": scale, "trials": trials}
    return {"rows": [*rows, rows[1] | liar], "caption": caption}


def draw(found: Measured, folder: Path) -> None:
    """Draw claims and proofs, with the package's own plot."""
    figure, ((ax,),) = new_figure(size=(7.5, 1.3 + 0.36 * len(found["rows"])))
    plot_audit(found["rows"], ax=ax)
    save(figure, folder / PICTURE.still)


if __name__ == "__main__":
    main(PICTURE, measure, draw)

"""The table that `summary` returns: rows as dictionaries in a list, shown as text or HTML, or as a frame.

Each row has an interval, and how much of it the noise of privacy makes: `noise_share` is the share of the
variance, `width_without_noise` the width that the interval would have without that noise. Variances add and
widths do not: a share of 50 % makes an interval 1.41 times as wide.
"""

import csv
import html
import io
import math
from collections.abc import Iterable
from typing import Any

from scipy.stats import norm

_NOISE = ("noise_share", "width_without_noise")


class Summary(list[dict[str, Any]]):
    """Rows of a summary: a list of dictionaries that prints as a table.

    Parameters
    ----------
    rows
        Dictionaries with the same keys.
    level
        Of the intervals.
    noise
        Whether noise of privacy is in the posterior; without, its columns are not shown.
    note
        Written below the table.

    Examples
    --------
    >>> Summary([{"name": "age", "mean": 0.5, "noise_share": 0.25}], noise=True)
    name  mean  noise share
    age    0.5         25 %
    90 % intervals; noise share: part of the variance that is noise of privacy
    """

    def __init__(
        self, rows: Iterable[dict[str, Any]] = (), *, level: float = 0.9, noise: bool = False, note: str = ""
    ) -> None:
        super().__init__(rows)
        self.level = level
        self.noise = noise
        self.note = note

    def to_pandas(self) -> Any:
        """Return a pandas data frame of all columns."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas.") from error
        return pandas.DataFrame(list(self))

    def to_polars(self) -> Any:
        """Return a polars data frame of all columns."""
        import polars

        return polars.DataFrame(list(self))

    def to_csv(self) -> str:
        """Return all columns as CSV text."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self)
        return text.getvalue()

    def __repr__(self) -> str:
        header, cells = self._cells()
        if not cells:
            return "a summary without rows"
        widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
        left = [isinstance(value, str) for value in self._shown(self[0]).values()]
        lines = [
            "  ".join(
                cell.ljust(width) if to_left else cell.rjust(width)
                for cell, width, to_left in zip(line, widths, left, strict=True)
            ).rstrip()
            for line in (header, *cells)
        ]
        return "\n".join([*lines, *self._notes()])

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        header, cells = self._cells()
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in cells
        )
        notes = "<br>".join(map(html.escape, self._notes()))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{notes}</p>"

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in row.items() if self.noise or key not in _NOISE}

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        header = [key.replace("_", " ") for key in self._shown(self[0])] if self else []
        return header, [[_text(key, value) for key, value in self._shown(row).items()] for row in self]

    def _notes(self) -> list[str]:
        words = f"{100 * self.level:g} % intervals"
        if self.noise:
            words += "; noise share: part of the variance that is noise of privacy"
        return [words, self.note] if self.note else [words]


def spans(level: float) -> float:
    """Return how many standard deviations a central Gaussian interval reaches to each side.

    Examples
    --------
    >>> round(spans(0.9), 3)
    1.645
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level!r}; 0.9 is usual.")
    return float(norm.ppf(0.5 + level / 2))


def width_parts(variance: float, noise: float, level: float) -> dict[str, float]:
    """Return the share of a variance that is noise of privacy, and the interval's width without it."""
    rest = max(variance - noise, 0.0)
    share = min(noise / variance, 1.0) if variance > 0 else 0.0
    return {"noise_share": float(share), "width_without_noise": 2 * spans(level) * math.sqrt(rest)}


def interval_row(mean: float, variance: float, noise: float, level: float) -> dict[str, float]:
    """Return the numbers of one Gaussian marginal: mean, sd, interval and the part of it that is noise.

    Parameters
    ----------
    mean, variance
        Of the marginal.
    noise
        Part of the variance that the noise of privacy causes.
    level
        Of the interval.
    """
    deviation = math.sqrt(variance)
    reach = spans(level) * deviation
    numbers = {"mean": float(mean), "sd": deviation, "low": float(mean - reach), "high": float(mean + reach)}
    return numbers | width_parts(float(variance), float(noise), level)


LEFT_OUT = "noise_aware=False: the intervals leave the noise of privacy out and are too narrow."
"""Note below the summary of a private posterior that was not widened."""


def _text(key: str, value: Any) -> str:
    if key == "noise_share":
        return f"{100 * value:.0f} %"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

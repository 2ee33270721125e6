"""CSV text as columns, block by block, so that a file larger than the memory it becomes can be read.

Number columns become doubles at once, text stays text. Where no schema says which are numbers, one more pass
finds the narrowest type that holds all of a column's cells. There are two ways to read:

- *whole*: a file is gone through once to see that it is text (UTF-8, quotes that close), and one that is
  damaged is refused. A quoted cell may go over several lines.
- *line by line*: behind the header every line is a record, whatever is in it. One that is damaged (another
  number of cells, quotes that do not close in it, a NUL) has no usable cell; bytes that are not UTF-8 spoil
  the cell they are in. So what becomes of a record depends on its own line, and no line is an error.

**Privacy.** A private fit reads line by line: the number of lines is public, and nothing but a record's own
row depends on what is in its line. Errors of the other way name lines, counts and columns and never repeat a
cell; they are for tables that are not private, and for `dpsep check`. With declared kinds no type depends on
a value; guessed types do, in either way.
"""

import codecs
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv

from dpsep.data.cells import missing_cells
from dpsep.data.declare import NA, Schema
from dpsep.data.frames import TableError, refuse_duplicates

__all__ = ["Layout", "Lines", "count_lines", "csv_layout", "guess_types", "read_csv", "read_lines"]

BLOCK = 2**24
"""Bytes that are read and parsed at a time."""
LONGEST_LINE = 2**22
"""Bytes that a record's line may have; a longer one is damaged, and its cells are none."""
MARKS = {
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
    b"PK\x03\x04": "a spreadsheet or a zip archive",
    b"\x1f\x8b": "packed by gzip",
    b"%PDF": "a PDF document",
    b"SQLite format 3": "an SQLite database",
    b"{": "JSON",
    b"[": "JSON",
    b"<": "HTML or XML",
}
"""What some files that are no CSV begin with."""
QUOTED = re.compile(rb'"[^"]*"')
LINE_END = re.compile(rb"\r\n?|\n")
NO_UTF8 = "is not UTF-8 text; save it with the encoding UTF-8"
NO_TEXT = "is not text; if it is Parquet or Arrow, say so with --format (format= in Python)"

Open = Callable[[], IO[bytes]]
"""Opens the text anew."""


class Layout(NamedTuple):
    """How a file is laid out.

    Attributes
    ----------
    separator
        Of cells.
    raw, names
        The columns' names as they stand, and without spaces.
    start
        Bytes before the first record.
    """

    separator: str
    raw: list[str]
    names: list[str]
    start: int = 0


def csv_layout(opened: Open, label: str) -> Layout:
    """Read the header line; the rows behind it are not looked at."""
    with opened() as file:
        whole = file.read(BLOCK)
    start = whole.lstrip()
    if not start:
        raise TableError(f"{label} is empty; a table has a header and at least one row")
    kind = next((what for mark, what in MARKS.items() if start.startswith(mark)), None)
    if kind is not None:
        raise TableError(f"{label} is {kind}, not CSV text; save the table as CSV, in UTF-8")
    ended = LINE_END.search(start)
    line = start if ended is None else start[: ended.start()]
    if b"\0" in line:
        raise TableError(f"{label} {NO_TEXT}")
    if ended is None:  # pyarrow takes a header that nothing ends for no table at all
        raise TableError(f"{label} has a header but no rows")
    if ended.group() == b"\r":
        raise TableError(f"{label} has lines that end in a carriage return alone; save it with line feeds")
    separator = next((mark for mark in ",\t;" if mark.encode() in line), ",")
    lead = len(whole) - len(start)
    header = _header(whole, lead, label)
    # Before pyarrow sees them: each column costs it kilobytes, and a run of separators is many columns.
    _refuse_nameless(QUOTED.sub(b"q", header[lead:]).split(separator.encode()), label)
    with _understood(label):
        header.decode("utf-8")
        parsing = _parsing(separator, [])
        # Not by a streaming reader: its thread may still be at work when a wrong call ends the process.
        raw = list(pyarrow.csv.read_csv(io.BytesIO(header), _reading(len(header)), parsing).column_names)
    names = [name.strip() for name in raw]
    _refuse_nameless([name.encode() for name in names], label)
    refuse_duplicates(names, label)
    return Layout(separator, raw, names, len(header))


def _refuse_nameless(names: list[bytes], label: str) -> None:
    place = next((place for place, name in enumerate(names, start=1) if not name.strip()), None)
    if place is not None:
        raise TableError(
            f"{label} has no name for column {place} of {len(names)}; name every column in the first line"
        )


def _header(text: bytes, start: int, label: str) -> bytes:
    """Return the text up to the end of the first line.

    Names must not go on behind it: quotes that do not close would make rows a part of the header, and of
    messages. pyarrow must not see the rows either: it would tell of bad ones on standard error.
    """
    ended = LINE_END.search(text, start)
    header = text if ended is None else text[: ended.end()]
    if header.count(b'"') % 2:
        raise TableError(f"the header of {label} has quotes that do not close in its first line; close them")
    return header


def read_csv(
    opened: Open, label: str, layout: Layout, wanted: Sequence[str], schema: Schema | None
) -> pl.DataFrame:
    """Read CSV text whole; what is damaged is refused.

    Parameters
    ----------
    opened
        Opens the text; it is called once a pass.
    label
        What errors call it.
    layout
        From `csv_layout`.
    wanted
        Which columns to take.
    schema
        The declared kinds; without one types are guessed from all cells.
    """
    _check_text(opened, label, layout.separator)
    taken = _taken(layout, wanted)
    blocks = partial(_blocks, opened, label, layout, taken)
    types = _guess(blocks(), taken) if schema is None else declared_types(schema, taken)
    return _framed(blocks(), taken, types, NA if schema is None else schema.na).select(wanted)


class Lines(NamedTuple):
    """A table read line by line, and the numbers of the lines that were damaged, the header's being 1."""

    frame: pl.DataFrame
    damaged: list[int]


def read_lines(opened: Open, layout: Layout, types: Mapping[str, Any], na: Sequence[str] = NA) -> Lines:
    """Read CSV text line by line: no line is an error, and none changes what becomes of another.

    Parameters
    ----------
    opened, layout
        As of `read_csv`.
    types
        Columns to take, and what they are read as (`declared_types`).
    na
        Texts that stand for a missing cell.
    """
    taken = _taken(layout, list(types))
    damaged: list[int] = []
    frame = _framed(_line_blocks(opened, layout, taken, damaged), taken, types, na)
    return Lines(frame.select(list(types)), damaged)


def guess_types(opened: Open, layout: Layout, wanted: Sequence[str]) -> Mapping[str, Any]:
    """Find the narrowest type of each column that holds all cells of lines that are not damaged."""
    taken = _taken(layout, wanted)
    return _guess(_line_blocks(opened, layout, taken, []), taken)


def declared_types(schema: Schema, names: Sequence[str]) -> dict[str, Any]:
    """Types that columns are read as: doubles, or text, by their declared kinds.

    A rule for missing cells needs to see them, so such a column stays text until it is encoded.
    """
    numbers = {
        column.name for column in schema.columns if column.kind == "number" and column.missing == "drop"
    }
    return {name: pl.Float64 if name in numbers else pl.String for name in names}


def count_lines(opened: Open, layout: Layout) -> int:
    """Count the lines behind the header, whatever is in them."""
    count, last = 0, b"\n"
    with opened() as file:
        file.read(layout.start)
        while block := file.read(BLOCK):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def _taken(layout: Layout, wanted: Sequence[str]) -> list[str]:
    asked = set(wanted)
    return [name for name in layout.names if name in asked]


def _framed(
    blocks: Iterator[list[pl.Series]], taken: Sequence[str], types: Mapping[str, Any], na: Sequence[str]
) -> pl.DataFrame:
    parts = [
        pl.DataFrame([_converted(series, types[series.name], na) for series in block]) for block in blocks
    ]
    return pl.concat([pl.DataFrame(schema={name: types[name] for name in taken}), *parts], rechunk=False)


def _check_text(opened: Open, label: str, separator: str) -> None:
    """Go through the bytes once: text in UTF-8, whose quotes open at a cell's start and close at its end.

    pyarrow takes a quote within a cell as it stands and one at the start of a cell as opening. One of each in
    a row and all rows behind it would be swallowed, in silence.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    quotes = Quotes(separator)
    try:
        with opened() as file:
            while block := file.read(BLOCK):
                if b"\0" in block:
                    raise TableError(f"{label} {NO_TEXT}")
                decoder.decode(block)
                quotes.see(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise TableError(f"{label} {NO_UTF8}") from None
    if not quotes.whole:
        raise TableError(
            f"{label} holds a quotation mark that is never closed, or one within a value; put such a value "
            'in quotes and write the mark as ""'
        )


class Quotes:
    """Whether quotes in text, seen block by block, open where a cell begins and close where it ends.

    Quotes alternate between opening and closing; a doubled one within quotes closes and opens again.

    Examples
    --------
    >>> def whole(text):
    ...     quotes = Quotes(",")
    ...     quotes.see(text)
    ...     return quotes.whole
    >>> whole(b'a,"b ""c"" d"\\n'), whole(b'a"b,"c\\n'), whole(b'"a')
    (True, False, False)
    """

    def __init__(self, separator: str) -> None:
        self._ends = np.frombuffer(f'\n\r"{separator}'.encode(), np.uint8)
        self._last = ord("\n")
        self._count = 0
        self._good = True
        self._first = True

    def see(self, block: bytes) -> None:
        """Take the next block."""
        if self._first and block.startswith(codecs.BOM_UTF8):
            block = block[len(codecs.BOM_UTF8) :]
        self._first = False
        if not block:
            return
        if self._last == ord('"') and self._count % 2 == 0 and self._count:
            self._good &= block[0] in self._ends  # a quote closed at the end of the block before
        if b'"' in block:
            text = np.frombuffer(block, np.uint8)
            places = np.flatnonzero(text == ord('"'))
            opening = (self._count + np.arange(len(places))) % 2 == 0
            before = np.where(places > 0, text[places - 1], self._last)
            behind = text[np.minimum(places + 1, len(text) - 1)]
            behind = np.where(places + 1 < len(text), behind, ord("\n"))
            self._good &= bool(np.isin(before[opening], self._ends).all())
            self._good &= bool(np.isin(behind[~opening], self._ends).all())
            self._count += len(places)
        self._last = block[-1]

    @property
    def whole(self) -> bool:
        """Whether all quotes seen are in order, and none is open."""
        return self._good and self._count % 2 == 0


def _blocks(opened: Open, label: str, layout: Layout, taken: Sequence[str]) -> Iterator[list[pl.Series]]:
    """Give the taken columns as text, block by block; rows of the wrong length are refused in the end."""
    ragged: list[tuple[int, int, int]] = []
    asked = set(taken)
    pairs = [(raw, name) for raw, name in zip(layout.raw, layout.names, strict=True) if name in asked]
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(layout.raw, pa.string()),
        strings_can_be_null=True,
        null_values=[""],
        include_columns=[raw for raw, _ in pairs] or layout.raw[:1],
    )
    parsing = _parsing(layout.separator, ragged)
    # A reader that is left open has a thread, which ends the process when that comes to its end.
    with (
        opened() as file,
        _understood(label),
        pyarrow.csv.open_csv(file, _reading(), parsing, convert) as reader,
    ):
        for batch in reader:
            columns = zip(pairs, batch.columns, strict=False)
            yield [pl.Series(name, pl.from_arrow(cells), dtype=pl.String) for (_, name), cells in columns]
    if ragged:
        line, expected, found = ragged[0]
        raise TableError(
            f"{label}: {len(ragged)} row(s) do not have the header's {expected} columns, the first in line "
            f"{line} with {found}; quote values that hold {layout.separator!r}"
        )


def _line_blocks(
    opened: Open, layout: Layout, taken: Sequence[str], damaged: list[int]
) -> Iterator[list[pl.Series]]:
    """Give the taken columns as text, block by block, one row a line; note the numbers of damaged lines."""
    separator, width = layout.separator.encode(), len(layout.raw)
    cell = rb'(?:"[^"]*(?:""[^"]*)*"|[^"%s]*)' % re.escape(separator)
    whole = re.compile(rb"%s(?:%s%s){%d}" % (cell, re.escape(separator), cell, width - 1))
    # Quotes make an empty cell of a table with one column a line that is not empty.
    nothing = separator * (width - 1) or b'""'
    names = [f"c{place}" for place in range(width)]
    places = [layout.names.index(name) for name in taken] or [0]
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=True,
        null_values=[""],
        include_columns=[names[place] for place in places],
    )
    parsing = pyarrow.csv.ParseOptions(delimiter=layout.separator, ignore_empty_lines=False)
    number = 1
    for lines in _lines(opened, layout):
        for place, line in enumerate(lines):
            # A line without quotes is whole if it has as many separators as the header.
            good = len(line) <= LONGEST_LINE and (
                whole.fullmatch(line) if b'"' in line else line.count(separator) == width - 1
            )
            if not good or b"\0" in line or b"\r" in line or (width == 1 and not line):
                lines[place] = nothing
                if line or width > 1:
                    damaged.append(number + place + 1)
        number += len(lines)
        # pyarrow takes a mark of byte order from the beginning: ours, and not one in a record's first cell.
        text = codecs.BOM_UTF8 + _as_utf8(b"\n".join(lines) + b"\n")
        reading = pyarrow.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names)
        found = pyarrow.csv.read_csv(io.BytesIO(text), reading, parsing, convert)
        assert found.num_rows == len(lines)
        columns = zip(taken, found.columns, strict=False)
        yield [pl.Series(name, pl.from_arrow(cells), dtype=pl.String) for name, cells in columns]


def _lines(opened: Open, layout: Layout) -> Iterator[list[bytes]]:
    """The lines behind the header, many at a time, without what ends them."""
    with opened() as file:
        file.read(layout.start)
        rest = b""
        while block := file.read(BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            rest = rest[: LONGEST_LINE + 1]  # as much as tells that it is too long
            if lines:
                yield [line.removesuffix(b"\r") for line in lines]
        if rest:
            yield [rest.removesuffix(b"\r")]


def _as_utf8(text: bytes) -> bytes:
    """Text in which bytes that are not UTF-8 are replaced, so that their cells are none that was declared."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode("utf-8")
    return text


def _guess(blocks: Iterator[list[pl.Series]], taken: Sequence[str]) -> Mapping[str, Any]:
    """Find the narrowest type that holds every cell of each column."""
    types: dict[str, Any] = dict.fromkeys(taken, pl.Int64)
    for block in blocks:
        for series in block:
            while types[series.name] != pl.String:
                there = len(series) - int(missing_cells(series, None, NA).sum())
                if _converted(series, types[series.name], NA).count() == there:
                    break
                types[series.name] = pl.Float64 if types[series.name] == pl.Int64 else pl.String
    return types


def _converted(series: pl.Series, kind: Any, na: Sequence[str]) -> pl.Series:
    if kind == pl.String:
        return series
    gone = pl.Series(missing_cells(series, None, na))
    stripped = series.str.strip_chars().set(gone, None)
    return stripped.cast(kind, strict=False)


@contextmanager
def _understood(label: str) -> Iterator[None]:
    """Turn pyarrow's refusals, which may quote cells, into one of ours."""
    try:
        yield
    except UnicodeDecodeError:
        raise TableError(f"{label} {NO_UTF8}") from None
    except pa.ArrowException:
        raise TableError(f"{label} is not a CSV table; check its header and its quotes") from None


def _reading(block: int | None = None) -> pyarrow.csv.ReadOptions:
    # One thread: only then does pyarrow know the number of a bad row.
    return pyarrow.csv.ReadOptions(use_threads=False, block_size=block or BLOCK)


def _parsing(separator: str, ragged: list[tuple[int, int, int]]) -> pyarrow.csv.ParseOptions:
    def note(row: Any) -> str:
        ragged.append((row.number, row.expected_columns, row.actual_columns))
        return "skip"

    return pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=note)

"""Where the registered files are, and how they come here.

A file is looked for below ``$DPSEP_DATA``, which is only ever read; then below the user's cache folder,
``platformdirs.user_cache_dir("dpsep")``; and is downloaded into the cache otherwise. Cached and downloaded
files must match the sha256 of ``checksums.txt``, and a download that does not is thrown away. What lies below
``$DPSEP_DATA`` is the user's own: the loaders check its shape.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import platformdirs
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["DataError", "advice", "locate", "own_file"]


class DataError(RuntimeError):
    """A registered data set could not be found, fetched or recognised."""


def own_file(key: str) -> Path | None:
    """Return the file's path below ``$DPSEP_DATA``, or None where it is not there."""
    folder = os.environ.get("DPSEP_DATA")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise DataError(f"DPSEP_DATA is {folder!r}, which is no folder; correct it, or unset it to download")
    path = Path(folder) / key
    return path if path.is_file() else None


def _cache() -> Path:
    return Path(platformdirs.user_cache_dir("dpsep"))


@cache
def _checksums() -> dict[str, tuple[str, str]]:
    """Return the sha256 and the home of every file, by its path below the data folder."""
    text = resources.files("dpsep_lab.data").joinpath("checksums.txt").read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {key: (digest, url) for key, digest, url in rows}


def locate(key: str) -> Path:
    """Return where a file is, after downloading it into the cache if it is nowhere yet."""
    own = own_file(key)
    if own is not None:
        return own
    import pooch  # imports much, and warns of a bar of its own in notebooks

    digest, url = _checksums()[key]
    name = key.split("/")[-2]
    responses: list[Any] = []  # pooch leaves the connection of a failed download open
    hooks = {"response": lambda response, *_, **__: responses.append(response)}
    try:
        with _quiet_pooch(), _progress() as progress:
            bar: Any = _Bar(progress, key)  # pooch's annotations know only of its own bar
            downloader: Any = pooch.HTTPDownloader(progressbar=bar, timeout=30, hooks=hooks)
            path = pooch.retrieve(
                url, known_hash=f"sha256:{digest}", fname=key, path=_cache(), downloader=downloader
            )
            return Path(path)
    except ValueError as error:
        raise DataError(
            f"the file at {url} is not the one expected (its sha256 is not {digest}); it was not kept. "
            f"{advice(name)}"
        ) from error
    except OSError as error:  # a dead connection as much as a cache folder that cannot be written
        raise DataError(
            f"{name} is not on this machine, and {url} could not be fetched into {_cache()} "
            f"({type(error).__name__}). {advice(name)}"
        ) from error
    finally:
        for response in responses:
            response.close()


def advice(name: str) -> str:
    """Say where files are looked for and what to put there."""
    files = [key for key in _checksums() if key.split("/")[-2] == name and "index_test" not in key]
    own = os.environ.get("DPSEP_DATA") or "not set"
    return (
        f"Looked below $DPSEP_DATA ({own}) and the cache folder {_cache()}. To use it offline, fetch it from "
        f"{_checksums()[files[0]][1]} and set DPSEP_DATA to a folder that holds it as {' and '.join(files)}."
    )


class _Bar:
    """A rich progress bar with the four members that pooch asks of one."""

    def __init__(self, progress: Progress, label: str):
        self._progress = progress
        self._task = progress.add_task(label, total=None, visible=False)

    @property
    def total(self) -> float | None:
        """The number of bytes to come, None while the server has not said it."""
        return self._progress.tasks[self._task].total

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None, visible=True)  # now bytes are coming

    def update(self, size: int) -> None:
        """Advance by a number of bytes."""
        self._progress.advance(self._task, size)

    def reset(self) -> None:
        """Go back to the start, keeping the total."""
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        """Stop this bar."""
        self._progress.stop_task(self._task)


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def _quiet_pooch() -> Iterator[None]:
    """Keep pooch's own messages out of the way of the progress bar, and put its level back afterwards."""
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)

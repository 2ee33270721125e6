"""A fitted estimator in a folder: JSON that any program can read, and a manifest that shows changes.

`save` writes ``posterior.json`` (parameters and everything learned), ``privacy.json`` and ``manifest.json``
(format number, SHA-256 of every file); `load` checks them and gives the estimator back, bit for bit. Nothing
is pickled: a folder from a stranger runs no code. The functions of a `BayesianModel` are not stored: its
posterior is all there after `load`, and predictions ask for the functions.

**Privacy.** What is stored is a fit's released result and its public parameters, so storing it costs nothing.
``random_state``, ``ledger`` and ``checkpoint`` are left out: the first could undo the noise, the others name
places on one machine. The manifest guards against accidents and careless edits. It is no signature: whoever
can write the folder can write a new manifest.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from dpsep.estimators.base import LinearWeights
from dpsep.estimators.custom import BayesianModel
from dpsep.estimators.json_values import Missing, StoreError, pack, unpack
from dpsep.estimators.mixed_base import MixedEstimator
from dpsep.estimators.mixture import GaussianMixture
from dpsep.estimators.network import NetworkEstimator
from dpsep.privacy.checkpoint import atomic_write, fsync_folder, make_folder
from dpsep.registry import ENTRIES

__all__ = ["FORMAT", "Estimator", "StoreError", "load", "save"]

FORMAT = 1
"""Number of the folder's format; `load` reads this one and all before it."""
MANIFEST, POSTERIOR, PRIVACY = "manifest.json", "posterior.json", "privacy.json"
Estimator = LinearWeights | MixedEstimator | GaussianMixture | NetworkEstimator | BayesianModel
"""What can be stored."""
KINDS: dict[str, type[Estimator]] = {entry.kind: entry.load() for entry in ENTRIES}
_FUNCTIONS = ("log_likelihood", "mean", "sample")
LEFT_OUT = ("random_state", "ledger", "checkpoint", *_FUNCTIONS)
_KEPT = ("_layout",)
"""Learned without a name that ends in an underscore: where the parameters of a `BayesianModel` are."""


def save(
    estimator: Estimator,
    folder: str | os.PathLike[str],
    extra: Mapping[str, str] | None = None,
    charged: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted estimator into a folder, durably; the manifest comes last, so that half a folder shows.

    Parameters
    ----------
    estimator
        One of this package's, fitted.
    folder
        Made if it is missing. Files of the same names are replaced.
    extra
        Further text files, by name, that the manifest is to cover.
    charged
        What was charged besides the fit, by name, for ``privacy.json``.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> from dpsep import LinearRegression
    >>> model = LinearRegression(private=False).fit(X, 2 * X[:, 0])
    >>> folder = tempfile.mkdtemp()
    >>> save(model, folder)
    >>> bool((load(folder).predict(X) == model.predict(X)).all())
    True
    """
    kind = type(estimator).__name__
    if KINDS.get(kind) is not type(estimator):
        raise StoreError(f"cannot save a {kind}; those that can be saved are {', '.join(KINDS)}.")
    check_is_fitted(estimator)
    parameters = estimator.get_params(deep=False)
    learned = {name: value for name, value in vars(estimator).items() if is_learned(name)}
    statement = getattr(estimator, "privacy_", None)
    content = {
        "format": FORMAT,
        "estimator": kind,
        "parameters": {name: pack(parameters[name]) for name in parameters if name not in LEFT_OUT},
        "learned": {name: pack(value) for name, value in learned.items()},
    }
    functions = [name for name in _FUNCTIONS if parameters.get(name) is not None]
    if functions:
        content["functions"] = functions
    privacy = {"private": False} if statement is None else {"private": True} | statement.to_dict()
    privacy |= charged or {}
    files = {POSTERIOR: as_json(content), PRIVACY: as_json(privacy), **(extra or {})}
    manifest: dict[str, Any] = {"format": FORMAT, "files": {name: sha256(files[name]) for name in files}}
    manifest["sha256"] = sha256(as_json(manifest))
    folder = Path(folder)
    make_folder(folder)
    for name, text in files.items():
        atomic_write(folder / name, text)
    atomic_write(folder / MANIFEST, as_json(manifest))
    fsync_folder(folder)


def load(folder: str | os.PathLike[str]) -> Estimator:
    """Read an estimator back, after checking every file that its manifest names.

    Raises
    ------
    StoreError
        The folder is not one of `save`'s, was written by a newer version, or was changed.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> folder = tempfile.mkdtemp()
    >>> from dpsep import LinearRegression
    >>> save(LinearRegression(private=False).fit(X, 2 * X[:, 0]), folder)
    >>> load(folder).coef_.round(2)
    array([2.])
    """
    folder = Path(folder)
    manifest = _manifest(folder)
    texts = {name: _checked(folder, name, digest) for name, digest in manifest["files"].items()}
    try:
        content = json.loads(texts[POSTERIOR])
        _check_format(folder, content["format"])
        kind = KINDS[content["estimator"]]
        parameters: dict[str, Any] = {name: unpack(part) for name, part in content["parameters"].items()}
        if not parameters.keys().isdisjoint(LEFT_OUT):  # a stranger's folder names no ledger of ours
            raise ValueError("a parameter that is never stored")
        # What a model offers depends on which functions it has; without a log-likelihood it says so itself.
        absent = set(content.get("functions", ())) & {"mean", "sample"}
        parameters.update({name: Missing(name) for name in absent})
        estimator = kind(**parameters)
        for name, value in content["learned"].items():
            if not is_learned(name):  # a method, say, that a value would hide
                raise ValueError("not the name of something learned")
            setattr(estimator, name, unpack(value))
        check_is_fitted(estimator)
    except StoreError:
        raise
    except Exception as error:  # whole and unchanged, yet not what `save` writes
        raise StoreError(
            f"{folder / POSTERIOR} does not describe an estimator that this version knows "
            f"({type(error).__name__}); use the version of dpsep that wrote it."
        ) from error
    return estimator


def _manifest(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise StoreError(f"there is no folder {folder}; name a folder that a fit has written.")
    if (folder / MANIFEST).exists() and not (folder / MANIFEST).is_file():  # a device or a pipe has no end
        raise StoreError(f"{folder / MANIFEST} is not a regular file; restore the folder.")
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        version, files, digest = manifest["format"], manifest["files"], manifest.pop("sha256", None)
        whole = sha256(as_json(manifest))
        named = isinstance(files, dict) and all(map(is_file_name, files))
    except FileNotFoundError:
        raise StoreError(
            f"{folder} has no {MANIFEST}: it is not the folder of a finished fit. Name one that is."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StoreError(f"{folder / MANIFEST} cannot be read as a manifest; restore the folder.") from None
    _check_format(folder, version)
    if digest != whole or not named or POSTERIOR not in files:
        raise StoreError(f"{folder / MANIFEST} was changed after the fit; restore the folder from a copy.")
    return manifest


def _checked(folder: Path, name: str, digest: str) -> str:
    path = folder / name
    if path.exists() and not path.is_file():  # a device or a pipe has no end
        raise StoreError(f"{path} is not a regular file; restore the folder.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); restore the folder.") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise StoreError(
            f"{path} was changed after the fit: it does not match {MANIFEST}. Restore it from a copy."
        )
    return content.decode("utf-8", "replace")


def _check_format(folder: Path, version: Any) -> None:
    """Refuse what a later version wrote, and what none did; every earlier format is read."""
    if isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= FORMAT:
        return
    if isinstance(version, int) and version > FORMAT:
        raise StoreError(
            f"{folder} was written by a newer version of dpsep: it has format {version} and this version "
            f"reads formats up to {FORMAT}. Update dpsep."
        )
    raise StoreError(
        f"{folder} has the format {version!r:.100}, which no version of dpsep writes; restore the folder."
    )


def is_learned(name: str) -> bool:
    return (name.endswith("_") and not name.startswith("_")) or name in _KEPT


def is_file_name(name: str) -> bool:
    """Say whether a name is that of a file in the folder, and not a way out of it."""
    return name not in ("", ".", "..") and name.isprintable() and not set(name) & {"/", "\\", ":"}


def as_json(content: Any) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()

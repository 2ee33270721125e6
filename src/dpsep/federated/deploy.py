"""A folder to deploy a federation from: certificates, keys, settings and start scripts, secure by default.

TLS protects what travels and proves to a site that it speaks with the server; a key of its own proves to the
server which site is which. Without both, Flower takes answers from anybody.

**Privacy.** Private keys are readable by their owner only (0600) and are written before anything names them.
A whole folder made in one place has had every site's key in that place: a site that does not want that makes
its own pair (`make_key_pair`, ``dpsep federate key``) and sends only the public half.
"""

import datetime
import ipaddress
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from dpsep.federated.config import MODELS, ConfigError
from dpsep.privacy.checkpoint import atomic_write, fsync_folder

__all__ = ["make_certificates", "make_deployment", "make_key_pair"]

YEARS = 2
"""How long certificates hold."""


def make_deployment(folder: Path, sites: Sequence[str], address: str) -> list[Path]:
    """Write a deployment's folder; it must not exist.

    Parameters
    ----------
    folder
        Where to write: ``server``, ``sites/NAME`` for each site, ``authority``, ``app`` and ``README.md``.
    sites
        The sites' names.
    address
        Where the sites find the server, host:port.

    Returns
    -------
    The files written.
    """
    names = _checked(sites)
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"the server's address must be host:port, as host.example.org:9092, not {address!r}."
        )
    folder = folder.absolute()
    if folder.exists():
        raise ConfigError(f"{folder} exists; name another folder (keys that are in use are not overwritten).")
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        _fill(new, names, address, host.strip("[]"), port)
        os.rename(new, folder)
        fsync_folder(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def make_certificates(folder: Path, hosts: Sequence[str], authority: Path) -> None:
    """Make an authority and a server certificate that it signs.

    Parameters
    ----------
    folder
        For ``authority.crt``, ``server.crt`` and ``server.key``.
    hosts
        Names and addresses of the server.
    authority
        Where the authority's private key goes. It is not needed again until the certificate runs out.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def certificate(
        name: str, owner: Any, issuer: str, signer: Any, extensions: list[tuple[Any, bool]]
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(owner.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        )
        marks = x509.SubjectKeyIdentifier.from_public_key(owner.public_key())
        signed = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        for extension, critical in (*extensions, (marks, False), (signed, False)):
            made = made.add_extension(extension, critical)
        return made.sign(signer, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)

    root, leaf = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    title = "dpsep federation"
    signs = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    _write_key(authority, _pem(root))
    _write_key(folder / "server.key", _pem(leaf))
    ends = [(x509.BasicConstraints(ca=True, path_length=0), True), (signs, True)]
    atomic_write(folder / "authority.crt", certificate(title, root, title, root, ends))
    serves = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.SubjectAlternativeName([_host(host) for host in hosts]), False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
    ]
    atomic_write(folder / "server.crt", certificate(hosts[0][:64], leaf, title, root, serves))


def make_key_pair(path: Path) -> Path:
    """Make the key pair of a site's SuperNode and return the path of the public half.

    Parameters
    ----------
    path
        Where the private key goes; the public one gets the ending ``.pub``. Neither may exist.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    public = path.with_name(path.name + ".pub")
    for place in (path, public):
        if place.exists():
            raise ConfigError(f"{place} exists and is kept: a key in use would be lost. Name another.")
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    _write_key(path, secret)
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    atomic_write(public, key.public_key().public_bytes(encoding, form) + b"\n")
    return public


def _fill(folder: Path, names: Sequence[str], address: str, host: str, port: str) -> None:
    server = folder / "server"
    for place in (server / "tls", server / "sites", folder / "authority", folder / "app"):
        place.mkdir(parents=True)
    hosts = list(dict.fromkeys((host, "localhost", "127.0.0.1")))
    make_certificates(server / "tls", hosts, folder / "authority" / "authority.key")
    for name in names:
        site = folder / "sites" / name
        site.mkdir(parents=True)
        public = make_key_pair(site / "site.key")
        shutil.copyfile(public, server / "sites" / f"{name}.pub")
        shutil.copyfile(server / "tls" / "authority.crt", site / "authority.crt")
        _write(site / "site.toml", "site.toml", name=name, address=address)
        _write(site / "start.sh", "start-site.sh", name=name)
    keys = "\n".join(f'{name} = "sites/{name}.pub"' for name in names)
    _write(server / "server.toml", "server.toml", sites=keys, port=port, models=", ".join(MODELS))
    _write(server / "start.sh", "start-server.sh")
    _write(folder / "app" / "pyproject.toml", "app/pyproject.toml")
    _write(folder / "README.md", "README.md", sites=", ".join(names), address=address)


def _write(path: Path, template: str, **words: str) -> None:
    text = files("dpsep.federated").joinpath("templates", template).read_text("utf-8")
    atomic_write(path, Template(text).safe_substitute(words))
    if path.suffix == ".sh":
        path.chmod(0o755)


def _write_key(path: Path, content: bytes) -> None:
    """Write a private key that was never readable by others."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _host(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _checked(sites: Sequence[str]) -> list[str]:
    names = list(sites)
    wrong = [name for name in names if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name)]
    if wrong or len(set(names)) < max(2, len(names)):
        raise ConfigError(
            "name two or more sites, each once, in letters, digits, - and _: --sites north,south,east."
        )
    return names

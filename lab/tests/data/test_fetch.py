import hashlib
import http.server
import io
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pooch
import pytest
from rich.console import Console
from rich.progress import Progress

from dpsep_lab.data import fetch
from dpsep_lab.data.fetch import DataError, locate

KEY = "uci/wine/data.txt"
BODY = b"7.4 0.7 0 1.9\n" * 1000


@pytest.fixture
def home(tmp_path) -> Iterator[tuple[Path, str]]:
    """Serve a folder on the loopback interface."""
    folder = tmp_path / "home"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, format, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder, no data folder and no proxy."""
    monkeypatch.delenv("DPSEP_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(fetch.platformdirs, "user_cache_dir", lambda _: str(tmp_path / "cache"))
    return tmp_path / "cache"


def register(monkeypatch, url: str, body: bytes) -> None:
    entry = {KEY: (hashlib.sha256(body).hexdigest(), url)}
    monkeypatch.setattr(fetch, "_checksums", lambda: entry)


def test_a_file_is_downloaded_into_the_cache_once(home, cache, monkeypatch):
    folder, url = home
    (folder / "data.txt").write_bytes(BODY)
    register(monkeypatch, f"{url}/data.txt", BODY)
    assert locate(KEY) == cache / KEY
    assert (cache / KEY).read_bytes() == BODY
    (folder / "data.txt").unlink()
    assert locate(KEY).read_bytes() == BODY


def test_a_download_with_another_checksum_is_refused_and_not_kept(home, cache, monkeypatch):
    folder, url = home
    (folder / "data.txt").write_bytes(b"something else")
    register(monkeypatch, f"{url}/data.txt", BODY)
    with pytest.raises(DataError, match=r"is not the one expected .*it was not kept"):
        locate(KEY)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_damaged_file_in_the_cache_is_fetched_again(home, cache, monkeypatch):
    folder, url = home
    (folder / "data.txt").write_bytes(BODY)
    register(monkeypatch, f"{url}/data.txt", BODY)
    (cache / KEY).parent.mkdir(parents=True)
    (cache / KEY).write_bytes(b"half a fi")
    assert locate(KEY).read_bytes() == BODY


def test_offline_the_error_says_where_to_put_the_file(home, cache, monkeypatch):
    _, url = home
    register(monkeypatch, f"{url}/absent.txt", BODY)
    with pytest.raises(DataError) as caught:
        locate(KEY)
    for part in ("wine is not on this machine", url, "HTTPError", str(cache), "DPSEP_DATA", KEY):
        assert part in str(caught.value)


def test_a_machine_without_a_network_gets_the_same_error(cache, monkeypatch):
    register(monkeypatch, "http://127.0.0.1:9/data.txt", BODY)  # nothing listens on the discard port
    with pytest.raises(DataError, match=r"could not be fetched into .* \(ConnectionError\)"):
        locate(KEY)


def test_the_users_own_folder_comes_first_and_is_only_read(home, cache, monkeypatch, tmp_path):
    _, url = home
    register(monkeypatch, f"{url}/data.txt", BODY)
    own = tmp_path / "own"
    (own / KEY).parent.mkdir(parents=True)
    (own / KEY).write_bytes(b"mine")
    monkeypatch.setenv("DPSEP_DATA", str(own))
    assert locate(KEY) == own / KEY
    assert [path for path in own.rglob("*") if path.is_file()] == [own / KEY]
    assert not cache.exists()


def test_a_file_missing_from_the_users_folder_is_downloaded_to_the_cache_not_there(
    home, cache, monkeypatch, tmp_path
):
    folder, url = home
    (folder / "data.txt").write_bytes(BODY)
    register(monkeypatch, f"{url}/data.txt", BODY)
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("DPSEP_DATA", str(own))
    assert locate(KEY) == cache / KEY
    assert not list(own.iterdir())


def test_a_data_folder_that_is_not_there_is_an_error(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("DPSEP_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="which is no folder"):
        locate(KEY)


def test_downloading_leaves_poochs_logger_as_it_was(home, cache, monkeypatch):
    _, url = home
    register(monkeypatch, f"{url}/absent.txt", BODY)
    monkeypatch.setattr(pooch.get_logger(), "level", logging.INFO)
    with pytest.raises(DataError):
        locate(KEY)
    assert pooch.get_logger().level == logging.INFO


def test_the_progress_bar_follows_pooch():
    progress = Progress(console=Console(file=io.StringIO()))
    bar = fetch._Bar(progress, "wine")
    assert bar.total is None
    bar.total = 2048
    bar.update(1024)
    assert (progress.tasks[0].completed, bar.total) == (1024, 2048)
    bar.reset()
    bar.update(2048)
    bar.close()
    assert progress.finished


def test_every_registered_file_has_a_sha256_and_a_secure_home():
    entries = fetch._checksums()
    assert len(entries) == 5 + 4 * 20 + 5 + 1 + 2  # tables, splits, year, adult
    for digest, url in entries.values():
        assert len(bytes.fromhex(digest)) == 32
        assert url.startswith("https://")


SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the data folder {SHARED} is not there")
def test_the_registered_checksums_are_those_of_the_files():
    for key, (digest, _) in fetch._checksums().items():
        if (SHARED / key).is_file():
            assert hashlib.sha256((SHARED / key).read_bytes()).hexdigest() == digest, key

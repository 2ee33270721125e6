import errno
import io
import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.privacy import checkpoint as module
from dpsep.privacy.checkpoint import Checkpoint, CheckpointError, WriteError, atomic_write


def leftovers(folder: Path) -> list[str]:
    return [name.name for name in folder.iterdir() if name.name.endswith(".tmp")]


def rewrite_header(checkpoint: Checkpoint, **changes: Any) -> None:
    with zipfile.ZipFile(checkpoint.path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(np.lib.format.read_array(io.BytesIO(members["header.npy"])).tobytes())
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.frombuffer(json.dumps(header | changes).encode(), dtype=np.uint8))
    members["header.npy"] = buffer.getvalue()
    with zipfile.ZipFile(checkpoint.path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    arrays = {
        "double": np.array([np.pi, -0.0, 5e-324, np.inf]),
        "single": np.array([[1.5, 2.5]], dtype=np.float32),
        "grid/sum": np.array([-(2**62), 7], dtype=np.int64),
        "scalar": np.array(2.0),
        "empty": np.zeros((0, 3)),
        "transposed": np.arange(6.0).reshape(2, 3).T,
    }
    checkpoint = Checkpoint(tmp_path / "new" / "folder")
    checkpoint.save(17, arrays, {"run": "r-1", "fingerprint": "ab", "nested": {"list": [1, 2.5, None]}})
    saved = Checkpoint(tmp_path / "new" / "folder").load()
    assert saved is not None
    step, loaded, meta = saved
    assert step == 17
    assert meta == {"run": "r-1", "fingerprint": "ab", "nested": {"list": [1, 2.5, None]}}
    assert loaded.keys() == arrays.keys()
    for name, expected in arrays.items():
        assert loaded[name].dtype == expected.dtype
        assert loaded[name].shape == expected.shape
        assert loaded[name].tobytes() == expected.tobytes()


def test_a_folder_without_a_checkpoint_loads_as_none(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path).load() is None
    assert Checkpoint(tmp_path / "missing").load() is None


def test_a_save_replaces_the_checkpoint_and_leaves_one_plain_npz_file(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for step in range(3):
        checkpoint.save(step, {"sum": np.full(4, float(step))}, {})
    assert [name.name for name in tmp_path.iterdir()] == [checkpoint.path.name]
    with np.load(checkpoint.path, allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["array/sum"], np.full(4, 2.0))


@pytest.mark.parametrize("name", ["seed", "PRNGKey", "rng_0", "random_state", "noise_stream", "keys"])
def test_names_of_generator_state_are_refused_at_every_depth(tmp_path: Path, name: str) -> None:
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(TypeError, match="random generator"):
        checkpoint.save(0, {name: np.zeros(2)}, {})
    with pytest.raises(TypeError, match="random generator"):
        checkpoint.save(0, {}, {name: 1})
    with pytest.raises(TypeError, match="random generator"):
        checkpoint.save(0, {}, {"settings": [{"deep": {name: 1}}]})
    assert not checkpoint.path.exists()


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.array(["text"]),
        np.array([1, 2], dtype=np.uint32),
        np.array([1j]),
        np.zeros(2, dtype=[("field", "f8")]),
        np.random.default_rng(0),
    ],
    ids=["object", "text", "unsigned", "complex", "record", "generator"],
)
def test_only_real_vectors_enter(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="dtype"):
        Checkpoint(tmp_path).save(0, {"released": value}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "meta", [{"a": {1, 2}}, {"a": float("nan")}, {"a": np.zeros(2)}, {"a": (1, 2)}, {1: 2}, {"a": b"bytes"}]
)
def test_meta_that_is_not_json_is_refused(tmp_path: Path, meta: dict[Any, Any]) -> None:
    with pytest.raises(TypeError):
        Checkpoint(tmp_path).save(0, {}, meta)


@pytest.mark.parametrize("step", [-1, 1.5, True, "3", None])
def test_a_step_is_a_count(tmp_path: Path, step: Any) -> None:
    with pytest.raises(ValueError, match="step"):
        Checkpoint(tmp_path).save(step, {}, {})


@settings(max_examples=60, deadline=None)
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, position: float, bit: int
) -> None:
    checkpoint = Checkpoint(tmp_path_factory.mktemp("flip"))
    checkpoint.save(5, {"released": np.arange(20.0)}, {"run": "r"})
    content = bytearray(checkpoint.path.read_bytes())
    content[int(position * len(content))] ^= 1 << bit
    checkpoint.path.write_bytes(content)
    try:
        saved = checkpoint.load()
    except CheckpointError:
        return
    assert saved is not None  # the bit was in a field that nothing reads, such as a member's date
    assert (saved.step, saved.meta) == (5, {"run": "r"})
    np.testing.assert_array_equal(saved.arrays["released"], np.arange(20.0))


def test_a_cut_or_foreign_file_is_refused_with_advice(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(5, {"released": np.arange(20.0)}, {})
    whole = checkpoint.path.read_bytes()
    for content in (b"", whole[:10], whole[: len(whole) // 2], whole[:-1], b"text", whole[100:]):
        checkpoint.path.write_bytes(content)
        with pytest.raises(CheckpointError, match="start anew"):
            checkpoint.load()
    np.savez(checkpoint.path, released=np.zeros(3))
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        checkpoint.load()


def test_vectors_that_do_not_match_their_digest_are_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(5, {"released": np.arange(20.0)}, {})
    rewrite_header(checkpoint, digest="0" * 64)
    with pytest.raises(CheckpointError, match="digest"):
        checkpoint.load()


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(5, {"released": np.arange(20.0)}, {})
    rewrite_header(checkpoint, format=2)
    with pytest.raises(CheckpointError, match=r"has format 2 and this version reads format 1"):
        checkpoint.load()


def test_a_newer_format_is_named_before_its_vectors_are_read(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(5, {"released": np.arange(20.0)}, {})
    rewrite_header(checkpoint, format=2)
    with zipfile.ZipFile(checkpoint.path, "a") as archive:
        archive.writestr("array/later.npy", b"\x93NUMPY\x09\x00 of a version to come")
    with pytest.raises(CheckpointError, match=r"has format 2"):
        checkpoint.load()
    rewrite_header(checkpoint, format=1)
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load()


def test_the_file_does_not_depend_on_the_order_of_names(tmp_path: Path) -> None:
    names = ["b", "a", "c"]
    headers, digests = set(), set()
    for order in (names, names[::-1]):
        checkpoint = Checkpoint(tmp_path)
        arrays = {name: np.full(2, ord(name), dtype=np.int64) for name in order}
        checkpoint.save(1, arrays, dict.fromkeys(order, 1))
        with np.load(checkpoint.path, allow_pickle=False) as archive:
            header = archive["header"].tobytes()
        headers.add(header)
        digests.add(json.loads(header)["digest"])
    assert len(headers) == len(digests) == 1
    renamed = Checkpoint(tmp_path)
    renamed.save(1, {"a": np.full(2, ord("b")), "b": np.full(2, ord("a")), "c": np.full(2, ord("c"))}, {})
    with np.load(renamed.path, allow_pickle=False) as archive:
        assert json.loads(archive["header"].tobytes())["digest"] not in digests


def test_a_pickle_in_the_archive_is_not_opened(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    np.savez(checkpoint.path, header=np.array([{"format": 1}], dtype=object))
    with pytest.raises(CheckpointError):
        checkpoint.load()


def test_text_and_bytes_are_written_whole_with_the_usual_permissions(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        atomic_write(tmp_path / "text.json", "ε = 1\n")
        atomic_write(str(tmp_path / "bytes"), b"\x00\xff")
    finally:
        os.umask(mask)
    assert (tmp_path / "text.json").read_bytes() == "ε = 1\n".encode()
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff"
    assert stat.S_IMODE((tmp_path / "text.json").stat().st_mode) == 0o644
    assert not leftovers(tmp_path)


def test_a_link_is_followed_and_a_device_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    atomic_write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "pipe", tmp_path):
        with pytest.raises(WriteError, match="not a regular file"):
            atomic_write(target, "x")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="existing folder"):
        atomic_write(tmp_path / "no" / "file", "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="existing folder") as caught:
        Checkpoint(tmp_path / "file").save(0, {}, {})
    assert "checkpoint.npz" not in str(caught.value)  # the folder is what cannot be made


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_keeps_the_old_file_and_removes_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(1, {"released": np.ones(3)}, {})
    with monkeypatch.context() as patch:
        patch.setattr(module.os, call, fail)
        with pytest.raises(WriteError, match="no room on the disk") as caught:
            checkpoint.save(2, {"released": np.zeros(3)}, {})
    assert caught.value.errno == errno.ENOSPC
    saved = checkpoint.load()
    assert saved is not None
    assert saved.step == 1
    assert not leftovers(tmp_path)


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", lambda file, view: write(file, view[:7]))
        atomic_write(tmp_path / "file", bytes(range(100)))
    assert (tmp_path / "file").read_bytes() == bytes(range(100))


def test_an_interruption_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            atomic_write(tmp_path / "file", "x")
    assert not list(tmp_path.iterdir())


def test_the_file_is_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def watched_replace(source: Path, target: Path) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(module.os, "fsync", watched_fsync)
    monkeypatch.setattr(module.os, "replace", watched_replace)
    atomic_write(tmp_path / "file", "x")
    assert calls == ["file", "rename", "folder"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_cannot_sync_a_folder_will_do_and_one_that_fails_will_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fsync = os.fsync

    def fail_on_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(module.os, "fsync", fail_on_folders)
    if number == errno.EIO:
        with pytest.raises(WriteError):
            atomic_write(tmp_path / "file", "x")
    else:
        atomic_write(tmp_path / "file", "x")
        assert (tmp_path / "file").read_text() == "x"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files cannot be counted")
def test_no_file_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = count()
    for number in range(5):
        Checkpoint(tmp_path / str(number)).save(number, {"released": np.ones(3)}, {})
    monkeypatch.setattr(module.os, "fsync", fail)
    for _ in range(5):
        with pytest.raises(WriteError):
            atomic_write(tmp_path / "file", "x")
    assert count() <= before + 1


KILLED = """
import os, signal, sys, time, random
from pathlib import Path
import numpy as np
from dpsep.privacy.checkpoint import Checkpoint

folder, draw = Path(sys.argv[1]), random.Random(7)
for trial in range(20):
    checkpoint = Checkpoint(folder / str(trial))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        for step in range(1, 10**6):
            checkpoint.save(step, {"released": np.full(2000, float(step))}, {})
            os.write(write, b"%d\\n" % step)
    os.close(write)
    first = os.read(read, 1) if trial % 4 else b""  # most are killed after they have saved something
    time.sleep(draw.uniform(0.0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    confirmed = (first + open(read, "rb").read()).split()
    saved = checkpoint.load()
    step = saved.step if saved else 0
    assert step >= int(confirmed[-1] if confirmed else 0), (trial, step, confirmed[-1:])
    assert saved is None or (saved.arrays["released"] == step).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
def test_a_killed_process_leaves_a_whole_checkpoint_no_older_than_confirmed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr

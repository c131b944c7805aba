"""Export and import: the same bytes each time, and nothing of a hostile archive reaches the disk."""

import errno
import fcntl
import gzip
import hashlib
import io
import json
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from trackside.records.errors import TracksideError
from trackside.store import archive as archive_module
from trackside.store import unpacking as module
from trackside.store.archive import export_runs, import_runs
from trackside.store.runs import Run, RunStore

RUN = "c-20261115-143012-7f3a"
RECORD = json.dumps({"schema": "trackside.lap/1", "run_id": RUN}).encode()

Member = tuple[tarfile.TarInfo, bytes]


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "store")


@pytest.fixture
def run(store: RunStore) -> Run:
    run = store.new_run("profile")
    (run.folder / "capture").mkdir()
    (run.folder / "capture" / "windows.json").write_text("[]")
    (run.folder / "trace.json.gz").write_bytes(os.urandom(3_000_000))
    store.write_record(run, {"schema": "trackside.lap/1", "run_id": run.id, "status": "done"})
    return run


def plain(name: str, data: bytes = b"x") -> Member:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    return member, data


def special(name: str, kind: bytes, target: str = "") -> Member:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def packed(path: Path, *members: Member, announced: bool = True, runs: list[str] | None = None) -> Path:
    """An archive as an attacker would make it: right in all but what is tried."""
    files = {member.name: hashlib.sha256(data).hexdigest() for member, data in members}
    ids = runs if runs is not None else sorted({name.partition("/")[0] for name in files})
    manifest = json.dumps({"schema": "trackside.export/1", "runs": ids, "files": files}).encode()
    with tarfile.open(path, "w:gz") as archive:
        for member, data in [plain("export.json", manifest), *members] if announced else members:
            archive.addfile(member, io.BytesIO(data))
    return path


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_an_export_has_the_same_bytes_each_time(store: RunStore, run: Run, tmp_path: Path) -> None:
    first = export_runs(store, [run.id], tmp_path / "a.tar.gz")
    os.utime(run.folder / "record.json", (0, 0))
    second = export_runs(store, ["last", run.id[:-1]], tmp_path / "b.tar.gz")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert (first.ids, second.ids, first.bytes) == ((run.id,), (run.id,), first.path.stat().st_size)


def test_what_is_exported_comes_back_byte_by_byte(store: RunStore, run: Run, tmp_path: Path) -> None:
    path = export_runs(store, [run.id], tmp_path / "a.tar.gz").path
    other = RunStore(tmp_path / "other")
    assert import_runs(other, path).ids == (run.id,)
    there = other.runs / run.id
    assert everything(there) == everything(run.folder)
    assert all(
        (there / name).read_bytes() == (run.folder / name).read_bytes()
        for name in everything(there)
        if (there / name).is_file()
    )
    assert other.list()[0].state == "done"
    assert (other.root / ".gitignore").exists()


def test_a_run_that_is_there_with_the_same_bytes_is_left_alone(
    store: RunStore, run: Run, tmp_path: Path
) -> None:
    path = export_runs(store, [run.id], tmp_path / "a.tar.gz").path
    (run.folder / "report.html").write_text("written since")
    inode = run.folder.stat().st_ino
    done = import_runs(store, path)
    assert (done.ids, done.present) == ((), (run.id,))
    assert run.folder.stat().st_ino == inode
    assert not list(store.runs.glob(".*"))


def test_another_run_under_the_same_id_is_an_error_and_nothing_of_the_archive_is_taken(
    store: RunStore, run: Run, tmp_path: Path
) -> None:
    more = store.new_run("lap")
    store.write_record(more, {"schema": "trackside.lap/1"})
    path = export_runs(store, [run.id, more.id], tmp_path / "a.tar.gz").path
    other = RunStore(tmp_path / "other")
    import_runs(other, path)
    for run_id in (run.id, more.id):
        record = other.runs / run_id / "record.json"
        if run_id == run.id:
            record.write_text(record.read_text().replace("done", "failed"))
        else:
            for file in record.parent.iterdir():
                file.unlink()
            record.parent.rmdir()
    with pytest.raises(TracksideError, match=r"whose record\.json is another") as caught:
        import_runs(other, path)
    assert f"trackside runs rm {run.id}" in caught.value.remedy
    assert {child.name for child in other.runs.iterdir()} == {run.id}


def test_a_run_without_a_final_record_is_not_exported(store: RunStore, tmp_path: Path) -> None:
    store.new_run("lap")
    with pytest.raises(TracksideError, match="is running"):
        export_runs(store, ["last"], tmp_path / "a.tar.gz")
    assert not (tmp_path / "a.tar.gz").exists()


def test_a_file_that_exists_is_not_overwritten_without_force(
    store: RunStore, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "a.tar.gz"
    out.write_text("precious")
    with pytest.raises(TracksideError, match="will not overwrite"):
        export_runs(store, [run.id], out)
    assert out.read_text() == "precious"
    export_runs(store, [run.id], out, replace=True)
    assert [child.name for child in tmp_path.iterdir() if child.name.endswith(".tmp")] == []


def test_links_in_a_run_are_left_out_and_named(store: RunStore, run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (run.folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(run.folder / "pipe")
    (run.folder / "\nodd").write_text("")
    done = export_runs(store, [run.id], tmp_path / "a.tar.gz")
    assert set(done.left_out) == {f"{run.id}/link", f"{run.id}/pipe", f"{run.id}/\nodd"}
    with tarfile.open(done.path) as archive:
        assert {f"{run.id}/link", f"{run.id}/pipe"}.isdisjoint(archive.getnames())


@pytest.mark.parametrize(
    "member",
    [
        plain("/etc/passwd"),
        plain("../outside"),
        plain(f"{RUN}/../../outside"),
        plain(f"{RUN}/../{RUN}/x"),
        plain(f"{RUN}//x"),
        plain(f"{RUN}/./x"),
        plain(f"{RUN}"),
        plain(f"{RUN}/.hidden"),
        plain(f"{RUN}/.record.json.1-a.tmp"),
        plain(f"{RUN}/-rf"),
        plain(f"{RUN}/a\\b"),
        plain(f"{RUN}/a\nb"),
        plain(f"{RUN}/\x1b[31m"),
        plain(f"{RUN}/" + "a" * 300),
        plain(f"{RUN}/" + "a/" * 30 + "x"),
        plain("index.sqlite3"),
        plain("runs/x"),
        plain("C-20261115-143012-7f3a/record.json"),
        special(f"{RUN}/link", tarfile.SYMTYPE, "/etc/passwd"),
        special(f"{RUN}/link", tarfile.LNKTYPE, f"{RUN}/record.json"),
        special(f"{RUN}/device", tarfile.CHRTYPE),
        special(f"{RUN}/device", tarfile.BLKTYPE),
        special(f"{RUN}/pipe", tarfile.FIFOTYPE),
        special(f"{RUN}/folder", tarfile.DIRTYPE),
        special(f"{RUN}/odd", b"Z"),
    ],
    ids=lambda member: repr(member[0].name)[:40] + member[0].type.decode(),
)
def test_a_member_that_no_export_writes_is_refused_and_nothing_is_stored(
    store: RunStore, tmp_path: Path, member: Member
) -> None:
    path = packed(tmp_path / "a.tar.gz", plain(f"{RUN}/record.json", RECORD), member, runs=[RUN])
    with pytest.raises(TracksideError, match="nothing was imported") as caught:
        import_runs(store, path)
    assert caught.value.kind == "store"
    assert everything(tmp_path) == {"a.tar.gz", "store", "store/.gitignore", "store/runs"}


def test_a_name_through_a_link_of_an_earlier_member_leads_nowhere(store: RunStore, tmp_path: Path) -> None:
    members = (special(f"{RUN}/a", tarfile.SYMTYPE, str(tmp_path)), plain(f"{RUN}/a/outside"))
    with pytest.raises(TracksideError, match="symbolic link"):
        import_runs(store, packed(tmp_path / "a.tar.gz", plain(f"{RUN}/record.json", RECORD), *members))
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"{", "cannot read"),
        (b"[]", "not a JSON object"),
        (b"{}", "no record of Trackside"),
        (b'{"schema": "other.thing/1"}', "no record of Trackside"),
        (b'{"schema": "trackside.lap/1", "status": "running"}', "no final record"),
        (b'{"schema": "trackside.lap/1", "run_id": "c-20261115-143012-0000"}', "is really run"),
    ],
)
def test_what_is_no_record_of_ours_is_refused(
    store: RunStore, tmp_path: Path, record: bytes, why: str
) -> None:
    with pytest.raises(TracksideError, match=why):
        import_runs(store, packed(tmp_path / "a.tar.gz", plain(f"{RUN}/record.json", record)))
    assert store.list() == []


def test_a_start_file_of_another_run_is_refused(store: RunStore, tmp_path: Path) -> None:
    start = plain(f"{RUN}/run.json", b'{"id": "c-20261115-143012-0000"}')
    with pytest.raises(TracksideError, match="is really run"):
        import_runs(store, packed(tmp_path / "a.tar.gz", plain(f"{RUN}/record.json", RECORD), start))


@pytest.mark.parametrize(
    "how", ["twice", "missing record", "not announced", "no manifest", "newer format", "empty"]
)
def test_an_archive_whose_parts_do_not_fit_is_refused(store: RunStore, tmp_path: Path, how: str) -> None:
    path, record, more = (
        tmp_path / "a.tar.gz",
        plain(f"{RUN}/record.json", RECORD),
        plain(f"{RUN}/run.json", b"{}"),
    )
    match how:
        case "twice":
            packed(path, record, record)
        case "missing record":
            packed(path, more)
        case "not announced":
            packed(path, record, runs=[RUN, "c-20261115-143012-0000"])
        case "no manifest":
            packed(path, record, announced=False)
        case "newer format":
            packed(path, plain("export.json", b'{"schema": "trackside.export/2"}'), record, announced=False)
        case "empty":
            packed(path)
    with pytest.raises(TracksideError, match="nothing was imported"):
        import_runs(store, path)
    assert store.list() == []
    assert not list(store.runs.glob(".*"))


@pytest.mark.parametrize("place", [0.0, 0.02, 0.5, 0.99])
def test_an_archive_that_is_cut_off_or_damaged_is_refused(
    store: RunStore, run: Run, tmp_path: Path, place: float
) -> None:
    whole = export_runs(store, [run.id], tmp_path / "a.tar.gz").path.read_bytes()
    at = int(len(whole) * place)
    other = RunStore(tmp_path / "other")
    for broken in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]):
        (tmp_path / "b.tar.gz").write_bytes(broken)
        with pytest.raises(TracksideError, match="nothing was imported"):
            import_runs(other, tmp_path / "b.tar.gz")
        assert not list(other.runs.iterdir())


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", gzip.compress(b"hello"), gzip.compress(b"x" * 5000), b"\x1f\x8b"],
    # Compressed bytes hold the time, and processes that share the tests must agree on their names.
    ids=["empty", "text", "packed text", "packed bytes", "two bytes"],
)
def test_any_other_file_is_refused(store: RunStore, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(data)
    with pytest.raises(TracksideError, match="nothing was imported"):
        import_runs(store, tmp_path / "a.tar.gz")


@pytest.mark.parametrize("missing", ["none.tar.gz", "."])
def test_a_file_that_is_not_there_is_not_found(store: RunStore, tmp_path: Path, missing: str) -> None:
    with pytest.raises(TracksideError) as caught:
        import_runs(store, tmp_path / missing)
    assert caught.value.kind == "not-found"
    assert not store.root.exists()


def test_an_archive_that_cannot_be_reached_is_told_as_that(store: RunStore, tmp_path: Path) -> None:
    # A name that no file system takes: root may enter any folder.
    with pytest.raises(TracksideError, match=r"cannot read .*a: File name too long") as caught:
        import_runs(store, tmp_path / ("a" * 300))
    assert caught.value.kind == "store"
    assert not store.root.exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("closed", ["folder", "folder/a.tar.gz"])
def test_an_archive_without_permission_is_told_as_that(store: RunStore, tmp_path: Path, closed: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.tar.gz").touch()
    (tmp_path / closed).chmod(0)
    try:
        with pytest.raises(TracksideError, match=r"cannot read .*: Permission denied"):
            import_runs(store, tmp_path / "folder" / "a.tar.gz")
    finally:
        (tmp_path / closed).chmod(0o700)


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="a file that opens, and gives an error when read"
)
def test_an_archive_that_the_disk_cannot_read_is_told_as_that(store: RunStore) -> None:
    with pytest.raises(TracksideError, match=r"it cannot be read .*; nothing was imported"):
        import_runs(store, Path("/proc/self/mem"))


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_no_file_to_export_to(
    store: RunStore, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", "..", "/", str(tmp_path)):
        with pytest.raises(TracksideError, match="is a folder; needed: a file") as caught:
            export_runs(store, [run.id], Path(folder), replace=force)
        assert caught.value.kind == "usage"


def test_an_archive_that_unpacks_to_more_than_the_limit_is_refused(store: RunStore, tmp_path: Path) -> None:
    bomb = plain(f"{RUN}/zeros", bytes(3_000_000))
    path = packed(tmp_path / "a.tar.gz", plain(f"{RUN}/record.json", RECORD), bomb)
    assert path.stat().st_size < 10_000
    with pytest.raises(TracksideError, match="more than 1,000,000 bytes"):
        import_runs(store, path, most_bytes=1_000_000)
    assert not list(store.runs.iterdir())


def _oversized(path: Path, change: Callable[[bytearray], None]) -> Path:
    """An archive whose second header was changed, with a checksum that is right again."""
    packed(path, plain(f"{RUN}/record.json", RECORD), runs=[RUN])
    data = bytearray(gzip.decompress(path.read_bytes()))
    header = bytearray(data[1024:1536])
    change(header)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(gzip.compress(bytes(data[:1024]) + bytes(header) + bytes(data[1536:])))
    return path


@pytest.mark.parametrize("size", [b"77777777777\0", b"\x80" + b"\x00" * 3 + b"\x7f" * 8, b"\xff" * 12])
@pytest.mark.parametrize("kind", [b"0", b"x", b"L", b"S"])
def test_a_header_that_lies_about_its_size_costs_no_memory(
    store: RunStore, tmp_path: Path, size: bytes, kind: bytes
) -> None:
    def change(header: bytearray) -> None:
        header[124:136], header[156:157] = size, kind

    path = _oversized(tmp_path / "a.tar.gz", change)
    tracemalloc.start()
    with pytest.raises(TracksideError, match="nothing was imported"):
        import_runs(store, path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30_000_000
    assert not list(store.runs.iterdir())


def test_a_long_header_that_wants_to_fill_the_memory_is_refused(store: RunStore, tmp_path: Path) -> None:
    member = tarfile.TarInfo(f"{RUN}/record.json")
    member.pax_headers = {"comment": "x" * (module._MOST_HEADERS + 1)}
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(b""))
    with pytest.raises(TracksideError, match="header is too large"):
        import_runs(store, tmp_path / "a.tar.gz")


def _with_sparse_map(path: Path, entries: int) -> Path:
    """An archive with a sparse file, whose map is read in blocks until it has as many entries as it says."""
    sparse = tarfile.TarInfo(f"{RUN}/sparse")
    sparse.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}
    content = b"%d\n" % entries + b"1\n" * 2 * entries
    sparse.size = len(content)
    return packed(path, plain(f"{RUN}/record.json", RECORD), (sparse, content), runs=[RUN])


def test_the_map_of_a_sparse_file_costs_no_memory(store: RunStore, tmp_path: Path) -> None:
    path = _with_sparse_map(tmp_path / "a.tar.gz", 2_000_000)
    assert path.stat().st_size < 50_000
    with pytest.raises(TracksideError, match="header is too large"):
        import_runs(store, path)
    with pytest.raises(TracksideError, match="not a plain file"):
        import_runs(store, _with_sparse_map(tmp_path / "b.tar.gz", 10))
    assert not list(store.runs.iterdir())


def test_a_chain_of_headers_without_end_is_refused(store: RunStore, tmp_path: Path) -> None:
    header = tarfile.TarInfo("x").create_pax_global_header({"comment": "x"})
    one = bytearray(header[:512])
    one[156:157] = b"x"
    one[148:156] = b" " * 8
    one[148:156] = b"%06o\0 " % sum(one)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress((bytes(one) + header[512:]) * 900))
    with pytest.raises(TracksideError, match="nothing was imported"):
        import_runs(store, tmp_path / "a.tar.gz")


def test_headers_of_many_files_may_come_to_more_than_those_of_one(store: RunStore, tmp_path: Path) -> None:
    members = [plain(f"{RUN}/{number}") for number in range(3000)]
    path = packed(tmp_path / "a.tar.gz", plain(f"{RUN}/record.json", RECORD), *members)
    assert len(gzip.decompress(path.read_bytes())) > 3 * module._MOST_HEADERS // 2
    assert import_runs(store, path).ids == (RUN,)


def test_too_many_files_are_refused(store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_MEMBERS", 5)
    members = [plain(f"{RUN}/{number}") for number in range(9)]
    with pytest.raises(TracksideError, match="more than 5 files"):
        import_runs(store, packed(tmp_path / "a.tar.gz", *members))


def test_what_a_killed_import_left_is_swept_up_and_one_at_work_is_not(
    store: RunStore, run: Run, tmp_path: Path
) -> None:
    path = export_runs(store, [run.id], tmp_path / "a.tar.gz").path
    other = RunStore(tmp_path / "other")
    (other.runs / ".import-1-dead").mkdir(parents=True)
    with archive_module._staging(other) as at_work:
        import_runs(other, path)
        assert {child.name for child in other.runs.iterdir()} == {at_work.name, run.id}


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_an_import_that_ends_between_two_runs_takes_none(
    store: RunStore, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: BaseException
) -> None:
    more = store.new_run("lap")
    store.write_record(more, {"schema": "trackside.lap/1"})
    path = export_runs(store, [run.id, more.id], tmp_path / "a.tar.gz").path
    other = RunStore(tmp_path / "other")
    real, places = os.rename, list[str]()

    def rename(here: Path, there: Path) -> None:
        places.append(there.name)
        if len(places) == 2:
            raise trouble
        real(here, there)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises((KeyboardInterrupt, TracksideError)):
            import_runs(other, path)
    assert set(places) == {run.id, more.id}
    assert list(other.runs.iterdir()) == []
    assert len(import_runs(other, path).ids) == 2


def test_a_link_that_leads_nowhere_under_a_runs_id_is_a_conflict(
    store: RunStore, run: Run, tmp_path: Path
) -> None:
    path = export_runs(store, [run.id], tmp_path / "a.tar.gz").path
    other = RunStore(tmp_path / "other")
    other.runs.mkdir(parents=True)
    (other.runs / run.id).symlink_to(tmp_path / "nowhere")
    with pytest.raises(TracksideError, match="the store has a run of this id"):
        import_runs(other, path)


def test_an_import_whose_folder_was_swept_up_before_it_was_locked_takes_another(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, swept = fcntl.flock, list[Path]()
    store.runs.mkdir(parents=True)

    def flock(descriptor: int, operation: int) -> None:
        if not swept:
            swept.extend(store.runs.glob(".import-*"))
            swept[0].rmdir()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with archive_module._staging(store) as folder:
        archive_module.sweep_staging(store)
        assert list(store.runs.iterdir()) == [folder]
        assert swept != [folder]


def test_a_place_in_the_order_of_another_store_does_not_hide_later_runs(
    store: RunStore, tmp_path: Path
) -> None:
    start = {
        "id": RUN,
        "verb": "lap",
        "started_ns": 1,
        "order_ns": 2 * 10**18,
        "pid": 1,
        "process": "",
        "host": "",
    }
    members = (plain(f"{RUN}/record.json", RECORD), plain(f"{RUN}/run.json", json.dumps(start).encode()))
    import_runs(store, packed(tmp_path / "a.tar.gz", *members))
    assert store.resolve("last") == RUN
    run = store.new_run("lap")
    assert store.resolve("last") == run.id


def test_a_folder_is_no_archive_and_the_way_to_its_runs_is_told(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(TracksideError, match="is a folder; needed: a file") as caught:
        import_runs(store, tmp_path)
    assert f"TRACKSIDE_HOME={tmp_path} trackside runs list" in caught.value.remedy

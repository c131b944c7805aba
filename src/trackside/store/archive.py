"""Runs in one file, to take them elsewhere: the same bytes each time, and all of them imported or none."""

import contextlib
import fcntl
import filecmp
import gzip
import hashlib
import io
import os
import secrets
import shutil
import stat
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from trackside.records.errors import TracksideError
from trackside.store.entry import read_entry, started_ns_of_id
from trackside.store.files import fsync_folder, store_errors
from trackside.store.order import raise_mark
from trackside.store.runs import RunStore
from trackside.store.unpacking import MANIFEST, MANIFEST_SCHEMA, refused_name, unpacked

__all__ = ["MOST_BYTES", "Exported", "Imported", "export_runs", "import_runs"]

_STAGING: Final = ".import-"

MOST_BYTES: Final = 8 << 30
"""Of all files in an archive; a profile with its traces takes a tenth of a GB."""


@dataclass(frozen=True)
class Exported:
    path: Path
    ids: tuple[str, ...]
    bytes: int
    left_out: tuple[str, ...]
    """What is no plain file, below the runs' folders."""


@dataclass(frozen=True)
class Imported:
    ids: tuple[str, ...]
    """New in the store."""
    present: tuple[str, ...]
    """Were there already, with the same bytes."""


def export_runs(store: RunStore, references: Sequence[str], out: Path, *, replace: bool = False) -> Exported:
    """Writes runs into a .tar.gz; the same runs give the same bytes.

    Raises:
        TracksideError: kind `usage`, when `out` is a folder; kind `not-found`, when a reference fits none or
            several; kind `store`, when a run has no final record, the file exists, or the disk refuses.
    """
    if os.path.isdir(out):
        raise TracksideError(
            "usage", f"found: {out} is a folder; needed: a file to write", f"--out {out / 'runs.tar.gz'}"
        )
    ids = sorted({store.resolve(reference) for reference in references})
    for run_id in ids:
        entry = read_entry(store.runs / run_id)
        if entry is None or entry.state not in ("done", "failed", "newer"):
            state = f"{entry.state} ({entry.reason})" if entry is not None else "gone"
            raise TracksideError(
                "store",
                f"found: run {run_id} is {state}; needed: runs with a final record",
                "leave it out, or wait for its end",
            )
    left_out: list[str] = []
    temporary = out.with_name(f".{out.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    with store_errors(out, "write", "give another --out"):
        if not replace and os.path.lexists(out):
            raise TracksideError(
                "store", f"will not overwrite {out} without --force", "give another name, or --force"
            )
        try:
            with temporary.open("xb") as file:
                # Without a name and a time in its header.
                with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                    _write_members(packed, store, ids, left_out)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, out)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_folder(out.absolute().parent)
        return Exported(out, tuple(ids), out.stat().st_size, tuple(left_out))


def _write_members(packed: gzip.GzipFile, store: RunStore, ids: Sequence[str], left_out: list[str]) -> None:
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        names = [name for run_id in ids for name in _plain_files(store, run_id, left_out)]
        # Read twice, so that who imports knows beforehand what must come, and that it came whole.
        files = {name: _sha256(store.runs / name) for name in names}
        manifest = orjson.dumps(
            {"schema": MANIFEST_SCHEMA, "runs": ids, "files": files},
            option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
        )
        archive.addfile(_member(MANIFEST, len(manifest), 0), io.BytesIO(manifest))
        for name in names:
            started_s = started_ns_of_id(name.partition("/")[0]) // 1_000_000_000
            with (store.runs / name).open("rb") as file:
                archive.addfile(_member(name, os.fstat(file.fileno()).st_size, started_s), file)


def _plain_files(store: RunStore, run_id: str, left_out: list[str]) -> Iterator[str]:
    for path in sorted((store.runs / run_id).rglob("*")):
        name = path.relative_to(store.runs).as_posix()
        kind = path.lstat().st_mode
        # Names with a dot are what killed writers left.
        if stat.S_ISDIR(kind) or path.name.startswith("."):
            continue
        if stat.S_ISREG(kind) and refused_name(name) is None:
            yield name
        else:
            left_out.append(name)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _member(name: str, size: int, seconds: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, seconds, 0o644
    return member


def import_runs(store: RunStore, path: Path, *, most_bytes: int = MOST_BYTES) -> Imported:
    """Takes all runs of an archive into the store, or none.

    A run that is there with the same bytes is left alone.

    Raises:
        TracksideError: kind `not-found`, when there is no such file; kind `store`, when it cannot be read, is
            no archive of runs, asks for something that no export writes, or has another run under an id that
            is taken.
    """
    _check_readable(path)
    with store_errors(store.root, "import runs into"):
        store.create_root()
        store.runs.mkdir(exist_ok=True)
        sweep_staging(store)
        with _staging(store) as staging:
            ids = unpacked(path, staging, most_bytes)
            present = [run_id for run_id in ids if _is_present(store.runs / run_id, staging / run_id)]
            fresh = [run_id for run_id in ids if run_id not in present]
            _move_in(store, staging, fresh)
    return Imported(tuple(fresh), tuple(present))


def _check_readable(path: Path) -> None:
    try:
        # Before it is opened: a pipe would wait for its writer.
        kind = os.stat(path).st_mode
        if stat.S_ISREG(kind):
            path.open("rb").close()
            return
        if stat.S_ISDIR(kind):
            raise TracksideError(
                "not-found",
                f"found: {path} is a folder; needed: a file that `trackside runs export` wrote",
                f"to read the runs of a store there: TRACKSIDE_HOME={path} trackside runs list",
            )
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise TracksideError(
            "store", f"cannot read {path}: {error.strerror}", "make the file and its folder readable for you"
        ) from error
    raise TracksideError(
        "not-found", f"there is no file {path}", "give a file that `trackside runs export` wrote"
    )


def sweep_staging(store: RunStore) -> None:
    """Deletes what killed imports left. One that is at work holds the lock of its folder."""
    for leftover in store.runs.glob(f"{_STAGING}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(leftover, ignore_errors=True)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def _staging(store: RunStore) -> Iterator[Path]:
    """A folder beside the runs, on the same file system, which no list takes for a run."""
    while (locked := _locked_folder(store)) is None:
        pass
    folder, descriptor = locked
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked_folder(store: RunStore) -> tuple[Path, int] | None:
    """A new folder and the descriptor that locks it; None where another import swept it up before that."""
    folder = store.runs / f"{_STAGING}{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    descriptor, binding = -1, False
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        binding = os.path.samestat(os.fstat(descriptor), os.stat(folder))
    except FileNotFoundError:
        pass
    finally:
        if not binding:
            shutil.rmtree(folder, ignore_errors=True)
            if descriptor >= 0:
                os.close(descriptor)
    return (folder, descriptor) if binding else None


def _is_present(here: Path, there: Path) -> bool:
    """Whether the store has the run; more files here, as a report that was written since, do not matter.

    Raises:
        TracksideError: kind `store`, when it has another under this id.
    """
    # Also a link that leads nowhere is in the way.
    if not os.path.lexists(here):
        return False
    for file in there.rglob("*"):
        name = file.relative_to(there)
        own = here / name
        same = file.is_dir() or (
            own.is_file() and not own.is_symlink() and filecmp.cmp(file, own, shallow=False)
        )
        if not same:
            raise TracksideError(
                "store",
                f"will not import run {here.name}: the store has a run of this id whose {name} is another",
                f"nothing was imported; for the archive's, trackside runs rm {here.name} and import again",
            )
    return True


def _move_in(store: RunStore, staging: Path, ids: Sequence[str]) -> None:
    """Gives all runs their places; after an error or Ctrl-C in between, none has one."""
    try:
        for run_id in ids:
            _move_one(store.runs / run_id, staging / run_id)
        fsync_folder(store.runs)
        for run_id in ids:
            entry = read_entry(store.runs / run_id)
            if entry is not None and entry.order_ns > entry.started_ns:
                # Its place is one of another store's; runs that start here from now on come after it.
                raise_mark(store.root, entry.order_ns)
    except BaseException:
        for run_id in ids:
            # What is in staging still is not what the store has: another import of the same brought that.
            if not (staging / run_id).exists():
                with contextlib.suppress(FileNotFoundError):
                    os.rename(store.runs / run_id, staging / run_id)
        raise


def _move_one(place: Path, folder: Path) -> None:
    for inner in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        fsync_folder(inner)
    try:
        os.rename(folder, place)
    except OSError:
        # Another import of the same came first, or the disk refuses.
        if not (place.exists() and _is_present(place, folder)):
            raise

"""The device lock: exclusive between processes, released by death, honest about who holds it."""

import errno
import fcntl
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.processes import holding_process

from trackside.records.errors import TracksideError
from trackside.store import lock as lock_module
from trackside.store.lock import DeviceLock, gpu_key
from trackside.store.lock_holders import holder_named, holders_in

# One CPU of each core that this process may run on.
CORES = sorted({lock_module._core(cpu): cpu for cpu in sorted(os.sched_getaffinity(0), reverse=True)}.items())
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


class Patience:
    """A clock that moves only by sleeping, and does something at the n-th sleep."""

    def __init__(self, deeds: dict[int, Any] | None = None) -> None:
        self.now = 0.0
        self.sleeps = 0
        self.deeds = deeds or {}

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps += 1
        if deed := self.deeds.get(self.sleeps):
            deed()


def test_a_held_device_is_busy_and_the_holder_is_named(tmp_path: Path) -> None:
    with holding_process("cpu", tmp_path) as holder:
        with pytest.raises(TracksideError) as caught, DeviceLock("cpu", False, folder=tmp_path):
            pass
        assert caught.value.kind == "busy"
        assert f"cpu is in use by process {holder.pid} (trackside compare) since 2" in caught.value.message


def test_another_device_is_free(tmp_path: Path) -> None:
    with holding_process("cpu", tmp_path), DeviceLock("gpu-GPU-1234", False, folder=tmp_path):
        held = sorted(part for holder in holders_in(tmp_path) for part in holder["parts"])
        assert held == [*(f"cpu-{core}" for core, _ in CORES), "gpu-GPU-1234"]


def test_death_of_the_holder_frees_the_device(tmp_path: Path) -> None:
    with holding_process("cpu", tmp_path) as holder:
        holder.kill()
        holder.wait()
        with DeviceLock("cpu", False, folder=tmp_path):
            assert [found["pid"] for found in holders_in(tmp_path)] == [os.getpid()]
            assert len([*tmp_path.glob("holder-*")]) == 1, "the note of the dead one is gone"


def test_leaving_the_block_frees_the_device_even_by_exception(tmp_path: Path) -> None:
    with pytest.raises(KeyError), DeviceLock("cpu", False, folder=tmp_path):
        raise KeyError
    with DeviceLock("cpu", False, folder=tmp_path):
        pass
    assert not [*tmp_path.glob("holder-*")]


def test_waiting_tells_who_holds_the_device_once_and_then_gets_it(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with holding_process("cpu", tmp_path) as holder:

        def end_holder() -> None:
            holder.kill()
            holder.wait()

        patience = Patience({3: end_holder})
        with DeviceLock(
            "cpu", True, seen.append, folder=tmp_path, clock=patience.clock, sleep=patience.sleep
        ):
            assert patience.sleeps == 3
        assert [found["pid"] for found in seen] == [holder.pid]
        assert seen[0]["verb"] == "compare"


def test_waiting_ends_after_the_given_seconds(tmp_path: Path) -> None:
    patience = Patience()
    with holding_process("cpu", tmp_path):
        lock = DeviceLock("cpu", 2.5, folder=tmp_path, clock=patience.clock, sleep=patience.sleep)
        with pytest.raises(TracksideError, match=r"after 2\.5 s of waiting"), lock:
            pass
    assert 2.5 <= patience.now < 2.7


def test_a_lock_file_that_a_cleaner_removed_binds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name vanishes between open and flock: the lock must be taken on the file that others will find."""
    real = fcntl.flock
    calls: list[int] = []

    def remove_then_lock(descriptor: int, operation: int) -> None:
        if not calls:
            (tmp_path / "gpu-1.lock").unlink()
        calls.append(operation)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    with DeviceLock("gpu-1", False, folder=tmp_path):
        assert len([one for one in calls if one & fcntl.LOCK_NB]) == 2
        with pytest.raises(TracksideError), DeviceLock("gpu-1", False, folder=tmp_path):
            pass


@pytest.mark.parametrize("garbage", ["", "[1", "[]", '{"parts": "cpu"}', '"\ud800"'])
def test_garbage_in_a_note_is_no_obstacle(tmp_path: Path, garbage: str) -> None:
    with holding_process("cpu", tmp_path):
        (note,) = tmp_path.glob("holder-*")
        note.write_bytes(garbage.encode("utf-8", "surrogatepass"))
        with (
            pytest.raises(TracksideError, match="by another process"),
            DeviceLock("cpu", False, folder=tmp_path),
        ):
            pass


def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "gpu-1.lock").symlink_to(victim)
    with pytest.raises(TracksideError, match="cannot open the lock"), DeviceLock("gpu-1", folder=tmp_path):
        pass
    assert victim.read_text() == "precious"


@contextmanager
def limited(kind: int, soft: int) -> Iterator[None]:
    """A limit of this process, so that the kernel itself refuses."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_note_that_cannot_be_written_does_not_keep_the_device_from_its_holder(tmp_path: Path) -> None:
    with limited(resource.RLIMIT_FSIZE, 0), DeviceLock("cpu", False, folder=tmp_path):
        assert [note.read_bytes() for note in tmp_path.glob("holder-*")] == [b""]
        with pytest.raises(TracksideError, match="another process"), DeviceLock("cpu", 0, folder=tmp_path):
            pass
    with DeviceLock("cpu", False, folder=tmp_path):
        pass


def test_a_note_that_cannot_be_removed_does_not_spoil_the_end_of_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with DeviceLock("cpu", False, folder=tmp_path):
        monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.undo()
    assert [*tmp_path.glob("holder-*")], "else nothing was left to remove"
    assert holders_in(tmp_path) == [], "it is nobody's any more"
    with DeviceLock("cpu", False, folder=tmp_path) as again:
        assert again.key == "cpu"


@pytest.mark.parametrize("module_and_function", [(fcntl, "flock"), (os, "fstat")])
def test_a_file_system_that_cannot_lock_is_a_store_error_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module_and_function: tuple[Any, str]
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    before = open_descriptors()
    monkeypatch.setattr(*module_and_function, refuse)
    with pytest.raises(TracksideError, match="cannot lock") as caught, DeviceLock("cpu", folder=tmp_path):
        pass
    monkeypatch.undo()
    assert caught.value.kind == "store"
    assert "flock" in caught.value.remedy
    assert open_descriptors() == before


def test_the_remedy_fits_what_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def remedy(number: int | None = None, folder: Path = tmp_path) -> str:
        def refuse(*arguments: object) -> None:
            raise OSError(number, os.strerror(number or 0))

        with monkeypatch.context() as patch:
            if number is not None:
                patch.setattr(os, "open", refuse)
            with pytest.raises(TracksideError) as caught, DeviceLock("cpu", folder=folder):
                pass
        assert caught.value.kind == "store"
        return caught.value.remedy

    assert remedy(errno.EROFS) == f"make {tmp_path} writable for you"
    assert remedy(errno.EACCES) == f"make {tmp_path} writable for you"
    assert remedy(errno.ENOSPC) == f"free some space in {tmp_path}"
    assert remedy(errno.EIO) == f"see that {tmp_path} is on a sound local disk"
    assert remedy(folder=tmp_path / "absent") == f"create the folder {tmp_path / 'absent'}"
    with limited(resource.RLIMIT_NOFILE, 0):
        assert "ulimit -n" in remedy()
    first = tmp_path / f"cpu-{CORES[0][0]}.lock"
    first.mkdir()
    assert remedy() == f"delete {first} or make it yours"
    assert remedy(errno.EACCES) == f"delete {first} or make it yours"


def test_without_a_place_for_locks_the_remedy_is_for_the_first_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "absent"))
    place = Path("/tmp") / f"trackside-locks-{os.getuid()}"
    real = Path.mkdir

    def refuse(folder: Path, *arguments: Any, **more: Any) -> None:
        if folder == place:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        real(folder, *arguments, **more)

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(TracksideError, match=r"Read-only file system; .*No such file") as caught:
        DeviceLock("cpu").__enter__()
    assert caught.value.remedy == "make /tmp writable for you"


@pytest.mark.parametrize("key", ["", "../cpu", "a/b", ".hidden", "cpu\n"])
def test_a_key_that_is_no_file_name_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="a device key"):
        DeviceLock(key)


def test_every_process_of_a_user_looks_in_one_private_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("TRACKSIDE_LOCKS", raising=False)
    with DeviceLock("test-of-the-default-place", False):
        place = Path("/tmp") / f"trackside-locks-{os.getuid()}"
        assert (place / "test-of-the-default-place.lock").exists()
        assert place.stat().st_mode & 0o077 == 0


def test_one_object_cannot_be_entered_twice(tmp_path: Path) -> None:
    lock = DeviceLock("cpu", False, folder=tmp_path)
    with lock, pytest.raises(RuntimeError, match="held by this object"), lock:
        pass


def test_measurements_on_several_gpus_run_side_by_side_one_on_each(tmp_path: Path) -> None:
    gpus = [gpu_key(f"GPU-{number}") for number in range(3)]
    with ExitStack() as holders:
        for gpu in gpus:
            holders.enter_context(holding_process(gpu, tmp_path))
        for gpu in gpus:
            with pytest.raises(TracksideError, match=f"{gpu} is in use"), DeviceLock(gpu, 0, folder=tmp_path):
                pass


@needs_two_cores
def test_disjoint_sets_of_cpus_measure_side_by_side_and_overlapping_ones_wait(tmp_path: Path) -> None:
    (_, first), (_, second), *_ = CORES

    def busy() -> bool:
        try:
            with DeviceLock("cpu", False, folder=tmp_path):
                return False
        except TracksideError:
            return True

    with holding_process("cpu", tmp_path, cpus={first}):
        with holding_process("cpu", tmp_path, cpus={second}):
            assert busy(), "this one may run on both"
            assert [busy_on({cpu}, busy) for cpu in (first, second)] == [True, True]
        assert busy()
        assert [busy_on({cpu}, busy) for cpu in (first, second)] == [True, False]
    assert not busy()
    with DeviceLock("cpu", False, folder=tmp_path):
        assert busy_on({second}, busy), "who holds all holds each"


def busy_on(cpus: set[int], busy: Callable[[], bool]) -> bool:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        return busy()
    finally:
        os.sched_setaffinity(0, before)


@needs_two_cores
def test_a_set_that_is_refused_in_the_middle_gives_back_what_it_had(tmp_path: Path) -> None:
    (first, _), (second, _), *_ = CORES
    with holding_process(f"cpu-{second}", tmp_path):
        before = open_descriptors()
        with pytest.raises(TracksideError, match="cpu is in use"), DeviceLock("cpu", False, folder=tmp_path):
            pass
        assert open_descriptors() == before
        with DeviceLock(f"cpu-{first}", False, folder=tmp_path):
            pass


BELOW = (
    "import sys; from pathlib import Path; from trackside.store.lock import DeviceLock\n"
    "with DeviceLock('cpu', False, folder=Path(sys.argv[1])): print('went ahead')\n"
)


@pytest.mark.parametrize(("job", "goes_ahead"), [(None, True), ("1:/somewhere", True), ("own", False)])
def test_what_runs_below_the_holder_is_part_of_what_it_measures_unless_it_is_a_job(
    tmp_path: Path, job: str | None, goes_ahead: bool
) -> None:
    """A command that is compared may be `trackside profile`: it must not wait for who waits for it."""
    # The shell is in between, as the host of commands is; exec makes it the verb of a job.
    own = "TRACKSIDE_JOB=$$:/somewhere exec " if job == "own" else ""
    environment = os.environ | ({"TRACKSIDE_JOB": job} if job not in (None, "own") else {})
    words = ["sh", "-c", f'{own}"$@"; exit $?', "sh", sys.executable, "-c", BELOW, str(tmp_path)]
    with DeviceLock("cpu", False, folder=tmp_path):
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert (done.stdout == "went ahead\n") == goes_ahead, done.stderr
        assert ("is in use" in done.stderr) != goes_ahead
    with holding_process("cpu", tmp_path):
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert "is in use" in done.stderr, "a stranger has it"


def test_those_below_one_holder_keep_off_each_other(tmp_path: Path) -> None:
    words = [sys.executable, "-c", BELOW, str(tmp_path)]
    with DeviceLock("cpu", False, folder=tmp_path):
        with holding_process("cpu", tmp_path) as sibling:
            done = subprocess.run(words, capture_output=True, text=True)
            assert f"in use by process {sibling.pid}" in done.stderr, done.stdout
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.stdout == "went ahead\n", done.stderr
        # And what runs below one of them is part of what that one measures.
        nested = BELOW.replace("print('went ahead')", "import subprocess; subprocess.run(sys.argv[2:])")
        done = subprocess.run(
            [sys.executable, "-c", nested, str(tmp_path), *words], capture_output=True, text=True
        )
        assert done.stdout == "went ahead\n", done.stderr
    with DeviceLock("cpu", False, folder=tmp_path):
        pass


@contextmanager
def fork(act: Callable[[], object]) -> Iterator[None]:
    """A copy of this process that does something and stays, with all that is open here."""
    (done, tell), (hear, end) = os.pipe(), os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.close(end)
            act()
            os.write(tell, b"!")
            os.read(hear, 1)
        finally:
            os._exit(0)
    os.close(tell)
    os.read(done, 1)
    try:
        yield
    finally:
        os.close(end)
        os.waitpid(pid, 0)
        os.close(done)
        os.close(hear)


def test_a_fork_of_the_holder_neither_keeps_the_device_nor_gives_it_back(tmp_path: Path) -> None:
    lock = DeviceLock("cpu", False, folder=tmp_path)
    with ExitStack() as forks:
        with lock:
            forks.enter_context(fork(lambda: None))
            forks.enter_context(fork(lambda: lock.__exit__(None, None, None)))
            assert [found["pid"] for found in holders_in(tmp_path)] == [os.getpid()]
            with pytest.raises(TracksideError, match="is in use"), DeviceLock("cpu", False, folder=tmp_path):
                pass
        with DeviceLock("cpu", False, folder=tmp_path):
            pass


def test_threads_of_one_core_are_one_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four CPUs on two cores, 0 and 2 on the first; of CPU 3 nothing is known."""
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2"]):
        (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(siblings + "\n")
    monkeypatch.setattr(lock_module, "_CPUS", tmp_path)

    def on(*cpus: int) -> DeviceLock:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cpus))
        return DeviceLock("cpu", False, folder=tmp_path).__enter__()

    first = on(0)
    with pytest.raises(TracksideError, match="cpu is in use"):
        on(2)
    for other in (on(1), on(3)):
        other.__exit__(None, None, None)
    first.__exit__(None, None, None)
    both = on(0, 2)
    with pytest.raises(TracksideError, match="cpu is in use"):
        on(0)
    both.__exit__(None, None, None)


def test_containers_that_share_a_device_can_name_a_common_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRACKSIDE_LOCKS", str(tmp_path / "locks"))
    with DeviceLock("cpu", False):
        assert {f"cpu-{core}.lock" for core, _ in CORES} <= set(os.listdir(tmp_path / "locks"))
        with pytest.raises(TracksideError), DeviceLock("cpu", False):
            pass
    (tmp_path / "locks").chmod(0o777)
    with pytest.raises(TracksideError, match="others can write to it"):
        DeviceLock("cpu").__enter__()


# -- shared devices ------------------------------------------------------------------------------------------


def test_those_who_share_a_device_have_it_together_and_keep_others_off(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with (
        holding_process("cpu", tmp_path, shared=True) as first,
        holding_process("cpu", tmp_path, shared=True) as second,
    ):
        with pytest.raises(TracksideError) as caught, DeviceLock("cpu", False, folder=tmp_path):
            pass
        for holder in (first, second):
            assert f"process {holder.pid} (trackside" in caught.value.message
        patience = Patience({2: lambda: end(second), 4: lambda: end(first)})
        with DeviceLock(
            "cpu", True, seen.append, folder=tmp_path, clock=patience.clock, sleep=patience.sleep
        ):
            assert patience.sleeps == 4
    assert [(one["pid"], one["more"]) for one in seen] in (
        [(first.pid, 1), (first.pid, 0)],
        [(second.pid, 1), (first.pid, 0)],
    )
    assert holder_named(seen[0]).endswith(" and 1 more")
    with (
        holding_process("cpu", tmp_path),
        pytest.raises(TracksideError, match="in use"),
        DeviceLock("cpu", False, shared=True, folder=tmp_path),
    ):
        pass


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@needs_two_cores
def test_who_shares_all_cpus_excludes_a_measurement_on_some_of_them(tmp_path: Path) -> None:
    with (
        holding_process("cpu", tmp_path, cpus={CORES[1][1]}),
        pytest.raises(TracksideError, match="in use"),
        DeviceLock("cpu", False, shared=True, folder=tmp_path),
    ):
        pass


# -- below a holder ------------------------------------------------------------------------------------------

WIDER = (
    "import os, sys; from pathlib import Path; from trackside.store import lock\n"
    "lock._BELOW_S = float(sys.argv[2])\n"
    "os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[3:]})\n"
    "said = lambda holder: print('waits', flush=True)\n"
    "try:\n"
    "    with lock.DeviceLock('cpu', True, said, folder=Path(sys.argv[1])): print('went ahead')\n"
    "except lock.TracksideError as error: sys.exit(f'{error.message}; {error.remedy}')\n"
)


@needs_two_cores
@pytest.mark.timeout(60)
def test_what_widens_its_cpus_below_a_holder_waits_for_the_others_there_and_not_for_its_holder(
    tmp_path: Path,
) -> None:
    (_, first), (_, second), *_ = CORES
    words = [sys.executable, "-c", WIDER, str(tmp_path), "50", str(first), str(second)]
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {first})
    try:
        with DeviceLock("cpu", False, folder=tmp_path):
            done = subprocess.run(words, capture_output=True, text=True, timeout=30)
            assert done.stdout == "went ahead\n", done.stderr
            with holding_process("cpu", tmp_path, cpus={second}) as stranger:
                child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
                try:
                    assert child.stdout is not None
                    assert child.stdout.readline() == "waits\n"
                    end(stranger)
                    assert child.communicate(timeout=30) == ("went ahead\n", None)
                finally:
                    child.kill()
                    child.wait()
    finally:
        os.sched_setaffinity(0, before)


@needs_two_cores
@pytest.mark.timeout(60)
def test_two_holders_whose_children_want_what_the_other_has_do_not_wait_for_ever(tmp_path: Path) -> None:
    cpus = [cpu for _, cpu in CORES[:2]]
    outer = (
        "import os, subprocess, sys; from pathlib import Path; from trackside.store.lock import DeviceLock\n"
        "os.sched_setaffinity(0, {int(sys.argv[1])})\n"
        "with DeviceLock('cpu', True, folder=Path(sys.argv[2])):\n"
        "    print('held', flush=True); sys.stdin.readline()\n"
        "    sys.exit(subprocess.run(sys.argv[3:]).returncode)\n"
    )
    wider = [sys.executable, "-c", WIDER, str(tmp_path), "1", *map(str, cpus)]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", outer, str(cpu), str(tmp_path), *wider],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for cpu in cpus
    ]
    try:
        for one in both:
            assert one.stdout is not None
            assert one.stdout.readline() == "held\n"
        for one in both:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        said = [one.communicate(timeout=40) for one in both]
    finally:
        for one in both:
            one.kill()
    refused = [err for _, err in said if "is in use" in err]
    assert refused, "one of them at least cannot have both"
    assert all("start this measurement by itself" in err or "went ahead" in out for out, err in said), said


@pytest.mark.timeout(20)
def test_a_thread_does_not_wait_for_itself(tmp_path: Path) -> None:
    """`with trackside.profile():` around `trackside.compare` would never end."""
    with DeviceLock("cpu", verb="profile", folder=tmp_path):
        with pytest.raises(TracksideError, match=r"\(trackside profile\) since .*this very thread") as caught:
            DeviceLock("cpu", folder=tmp_path).__enter__()
        assert caught.value.kind == "busy"
        got = threading.Event()

        def wait() -> None:
            with DeviceLock("cpu", folder=tmp_path):
                got.set()

        other = threading.Thread(target=wait)
        other.start()
        assert not got.wait(0.3), "another thread waits its turn"
    other.join()
    assert got.is_set()


def test_a_note_that_was_just_begun_is_left_to_its_holder_and_an_old_one_is_removed(tmp_path: Path) -> None:
    fresh, old = (tmp_path / f"holder-{name}.json" for name in ("fresh", "old"))
    for note in (fresh, old):
        note.touch()
    os.utime(old, (0, 0))
    assert holders_in(tmp_path) == []
    assert (fresh.exists(), old.exists()) == (True, False)


def test_a_holder_that_cannot_be_read_is_named_without_a_process() -> None:
    assert holder_named({}) == "another run"
    assert holder_named({"verb": "profile", "pid": 12, "more": 2}) == "profile (process 12) and 2 more"

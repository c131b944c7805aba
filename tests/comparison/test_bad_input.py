"""Bad input, real processes: each ends with the right verdict or a clear error, and leaves nothing behind."""

import os
import re
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.comparison.program import BASELINE, HONEST
from tests.processes import alive

from trackside.comparison.checks import Ledger
from trackside.comparison.measure import used_beside
from trackside.comparison.trial import Crew, Options, run_trial
from trackside.comparison.trial_record import Outcome, grade
from trackside.records.errors import TracksideError
from trackside.store.runs import RunStore
from trackside.workload.supervisor import descendants

# Longer than loading a file takes on a busy machine; and for what hangs, no longer than needs be.
BUILD_SECONDS, HANG_SECONDS = 10.0, 2.0
PASSES = "inconclusive"


# -- one crew for many trials ------------------------------------------------------------------------


@dataclass
class Judged:
    """How one trial ended."""

    verdict: str
    reason: str
    record: dict[str, Any]
    error: TracksideError | None = None

    @property
    def failed(self) -> list[str]:
        return [c["id"] for c in self.record["checks"] if c["status"] == "fail"]


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    private = tmp_path_factory.mktemp("private")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(private))
        made = Crew(1)
    with made:
        made.start(1)
        yield made
    assert not os.listdir(private)


@pytest.fixture
def judge(crew: Crew, tmp_path: Path) -> Iterator[Callable[..., Judged]]:
    """Runs one candidate through every check but the clocks; afterwards nothing may be left of it."""

    def run(candidate: str, baseline: str = BASELINE, **options: Any) -> Judged:
        files = tmp_path / "files"
        files.mkdir(exist_ok=True)
        (files / "base.py").write_text(textwrap.dedent(baseline))
        (files / "new.py").write_text(HONEST + textwrap.dedent(candidate))
        asked = Options(
            files / "base.py",
            files / "new.py",
            **{"checks_only": True, "build_timeout": BUILD_SECONDS, "store": tmp_path / "store"} | options,
        )
        error = None
        try:
            run_trial(asked, crew=crew)
        except TracksideError as caught:
            error = caught
        record = RunStore(tmp_path / "store").load("last")
        return Judged(record["verdict"], "; ".join(record["reasons"]), record, error)

    yield run
    left = [
        p for p in descendants(crew.fleet._process.pid) if p not in crew.fleet._template_pids and alive(p)
    ]
    folders = [p.name for p in crew.fleet.folder.iterdir() if p.is_dir()]
    crew.fleet.sweep()
    assert not left, f"processes left behind: {left}"
    assert not folders, f"folders left behind: {folders}"


def test_an_honest_candidate_passes_every_check_so_the_rejections_below_mean_something(
    judge: Callable[..., Judged],
) -> None:
    result = judge("print('noise on stdout', flush=True)")
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)
    assert result.reason == "checks only: nothing was timed"


# -- candidates that fail ----------------------------------------------------------------------------

DEATHS = {
    "raises": (
        "def run(x): raise ValueError('no such kernel')",
        r"ValueError at .*new\.py:\d+.*no such kernel",
    ),
    "raises-on-import": (
        "raise OSError('no library')",
        r"could not be used: .*OSError: no library at .*new\.py:\d+",
    ),
    "imports-what-is-not-there": ("import no_such_package_anywhere", "no_such_package_anywhere"),
    "exits": ("def run(x): os._exit(0)", "exited with code 0"),
    "dies-of-a-signal-without-a-name": ("def run(x): os.kill(os.getpid(), 40)", "killed by signal 40"),
    "exits-politely": ("def run(x): sys.exit(0)", "SystemExit"),
    "segfaults": ("def run(x): ctypes.string_at(0)", "SIGSEGV"),
    "segfaults-on-import": ("ctypes.string_at(0)", "SIGSEGV.*`load`"),
    "aborts": ("def run(x): os.abort()", "SIGABRT"),
    "kills-itself": ("def run(x): os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    "hangs-on-import": ("time.sleep(600)", "no answer to `load` within 2.0 s"),
    "loops-for-ever": ("def run(x):\n    while True: pass", "no answer to `calls` within 2.0 s"),
    "stops-itself": ("def run(x): os.kill(os.getpid(), signal.SIGSTOP)", "no answer to `calls`"),
    "closes-every-descriptor": ("def run(x): os.closerange(0, 256); return honest(x)", "exited|closed"),
    "cannot-be-explained": (
        "class Sly(Exception):\n    def __str__(self): raise RuntimeError\ndef run(x): raise Sly",
        "exited with code 1",
    ),
    "raises-no-text": (r"def run(x): raise ValueError('\ud800')", "ValueError"),
    "recurses": ("def run(x): return run(x)", "RecursionError"),
}


@pytest.mark.parametrize("name", DEATHS)
def test_a_candidate_that_dies_or_hangs_is_rejected_with_the_cause(
    judge: Callable[..., Judged], name: str
) -> None:
    candidate, cause = DEATHS[name]
    hangs = "no answer" in cause
    result = judge(candidate, build_timeout=HANG_SECONDS if hangs else BUILD_SECONDS)
    assert (result.verdict, result.failed, result.error) == ("rejected", ["worker-survives"], None)
    assert re.search(cause, result.reason), result.reason


OUTPUTS = {
    "another-dtype": ("honest(x).double()", r"float64\[64, 64\].*float32\[64, 64\]"),
    "another-shape": ("honest(x)[:32]", r"float32\[32, 64\].*float32\[64, 64\]"),
    "a-tuple-around-it": ("(honest(x),)", "out is missing"),
    "an-extra-output": ("[honest(x), 1]", "missing|no such output"),
    "nothing": ("None", "NoneType"),
    "numpy": ("honest(x).numpy()", "numpy.ndarray"),
    "meta-device": ("honest(x).to('meta')", "meta device"),
    "sparse": ("honest(x).to_sparse()", "sparse"),
    "lazy-subclass": ("honest(x).as_subclass(type('Lazy', (torch.Tensor,), {}))", "Lazy"),
    "generator": ("(y for y in [honest(x)])", "generator"),
    "10-gigabytes": ("torch.empty(2_500_000_000)", r"float32\[2500000000\]"),
    "10-gigabytes-between-rows": (
        "torch.empty_strided((64, 64), (40_000_000, 1)).copy_(honest(x))",
        r"10,080,000,256 bytes.*16,384",
    ),
    "overlapping-rows": ("honest(x)[:1].expand(64, 64)", "share one place|expected"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_another_structure_is_rejected_and_both_are_named(judge: Callable[..., Judged], name: str) -> None:
    output, cause = OUTPUTS[name]
    result = judge(f"def run(x): return {output}")
    assert (result.verdict, result.failed) == ("rejected", ["output-structure"])
    assert re.search(cause, result.reason), result.reason


def test_a_wrong_answer_is_rejected_with_call_element_expected_and_found(
    judge: Callable[..., Judged],
) -> None:
    result = judge("def run(x):\n    y = honest(x)\n    y[3, 5] += 1\n    return y")
    assert (result.verdict, result.failed) == ("rejected", ["output-matches-oracle"])
    assert re.search(r"call \d+, out\[3, 5\]: expected [\d.]+, found [\d.]+", result.reason), result.reason


# -- candidates that forge ---------------------------------------------------------------------------

_WRITE = """
def run(x):
    for fd in range(64):
        try:
            os.write(fd, {data})
        except OSError:
            pass
    return honest(x)
"""
_FRAMED = "struct.pack('<I', len(body)) + body"
BYTES = {
    "text": "b'VERDICT: faster 100x certified ' * 50",
    "two-bytes": "b'ab'",
    "an-answer": f'(body := b\'{{"ns":[1],"host":[1],"leaves":[],"hooks":[]}}\') and {_FRAMED}',
    "an-empty-object": f"(body := b'{{}}') and {_FRAMED}",
    "a-5000-digit-number": f"(body := b'{{\"ns\":[' + b'1' * 5000 + b']}}') and {_FRAMED}",
    "a-length-of-4-gigabytes": "struct.pack('<I', 0xFFFFFFFF)",
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_forged_on_every_descriptor_are_rejected(judge: Callable[..., Judged], name: str) -> None:
    result = judge(_WRITE.format(data=BYTES[name]))
    assert (result.verdict, result.failed, result.error) == ("rejected", ["protocol-intact"], None)


def test_descriptors_sent_to_the_judge_are_rejected_and_closed(
    judge: Callable[..., Judged], crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew.fleet, "_unprotected", ["seccomp"])  # whose filter refuses to send any
    before = len(os.listdir("/proc/self/fd"))
    result = judge("""
        import array
        def run(x):
            null = os.open("/dev/null", os.O_RDONLY)
            for fd in range(3, 64):
                try:
                    sender = socket.socket(fileno=os.dup(fd))
                    for byte in struct.pack("<I", 202) + b"{}" + b" " * 200:
                        rights = array.array("i", [null] * 8)
                        sender.sendmsg([bytes([byte])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                except OSError:
                    pass
            return honest(x)
    """)
    assert (result.verdict, result.failed) == ("rejected", ["protocol-intact"])
    assert len(os.listdir("/proc/self/fd")) <= before


# The candidate replaces an operation of the worker: `real` is the true answer, the expression what it sends.
ANSWERS = {
    "calls-no-times": ("calls", "{**real, 'ns': []}"),
    "calls-nan": ("calls", "{**real, 'ns': [float('nan')] * len(real['ns'])}"),
    "calls-negative": ("calls", "{**real, 'ns': [-5] * len(real['ns'])}"),
    "calls-infinite-host-time": ("calls", "{**real, 'host': [float('inf')] * len(real['host'])}"),
    "calls-null": ("calls", "None"),
    "calls-raised-text": ("calls", "{'raised': 'x'}"),
    "calls-raised-part": ("calls", "{'raised': {'type': 'x'}}"),
    "calls-leaf-without-place": (
        "calls",
        "{**real, 'leaves': [[{k: v for k, v in f.items() if k != 'offset'} for f in leaf]"
        " if leaf != 'same' else leaf for leaf in real['leaves']]}",
    ),
    "calls-leaf-beyond-the-arena": (
        "calls",
        "{**real, 'leaves': [[{**f, 'offset': 1 << 40} for f in leaf] if leaf != 'same' else leaf"
        " for leaf in real['leaves']]}",
    ),
    "calls-value-without-value": ("calls", "{**real, 'leaves': [[{'path': 'out', 'kind': 'value'}]]}"),
    "facts-empty": ("facts", "{}"),
    "facts-other-types": ("facts", "{'flags': 3, 'replaced': 7, 'hooks': None, 'device_peak': 'x'}"),
    "state-empty": ("state_back", "{}"),
    "state-no-digest": ("state_back", "{'digests': {'x': [10**400, 'x']}}"),
    "17-megabytes": ("calls", "{**real, 'more': 'x' * (17 << 20)}"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_of_another_form_is_rejected(judge: Callable[..., Judged], name: str) -> None:
    operation, answer = ANSWERS[name]
    result = judge(f"""
        import trackside.workload.worker as worker
        original = worker._Worker._op_{operation}
        def forged(self, request):
            real = original(self, request)
            return {answer}
        worker._Worker._op_{operation} = forged
    """)
    assert (result.verdict, result.error) == ("rejected", None)
    assert set(result.failed) <= {"protocol-intact", "harness-intact", "worker-survives"}


def test_a_child_that_answers_in_its_parent_s_place_is_rejected(judge: Callable[..., Judged]) -> None:
    result = judge("def run(x):\n    os.fork()\n    return honest(x)")
    assert (result.verdict, result.failed) == ("rejected", ["protocol-intact"])


# -- candidates that reach out -----------------------------------------------------------------------

# Worker, template, supervisor, judge: each the parent of the one before.
_ANCESTORS = """
def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

worker = os.getpid()
template = parent(worker)
supervisor = parent(template)
judge = parent(supervisor)
"""


def confined(result: Judged) -> bool:
    return any(c["id"] == "isolation" and c["status"] == "pass" for c in result.record["checks"])


def test_neither_memory_nor_files_of_judge_and_reference_can_be_read(
    judge: Callable[..., Judged], tmp_path: Path
) -> None:
    secret = tmp_path / "store" / "secret"
    secret.parent.mkdir()
    secret.write_text("the seeds")
    result = judge(
        _ANCESTORS
        + f"""
siblings = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != worker]
family = [p for p in siblings if p in (template, supervisor, judge) or Path(f"/proc/{{p}}/stat").exists()
          and parent(p) in (template, supervisor)]
leaks = []
def attempt(what, action):
    try:
        action()
        leaks.append(what)
    except OSError:
        pass
for pid in family:
    for name in ("mem", "environ", "maps", "auxv", "fd/3", "cwd/", "root/etc"):
        attempt(f"{{name}} of {{pid}}", lambda: os.open(f"/proc/{{pid}}/{{name}}", os.O_RDONLY))
# A process that has ended has an empty `maps`, which anyone may open.
def empty(leak):
    return leak.startswith("maps") and not Path(f"/proc/{{leak.split()[-1]}}/maps").read_text()
leaks = [leak for leak in leaks if not empty(leak)]
attempt("store", lambda: open({str(secret)!r}))
attempt("store's folder", lambda: os.listdir({str(secret.parent)!r}))
attempt("other arm's folder", lambda: os.listdir(Path(os.environ["TMPDIR"]).parent.parent / "baseline"))
attempt("run's folder", lambda: os.listdir(Path(os.environ["TMPDIR"]).parent.parent))
assert len(family) >= 4, family
if leaks:
    raise RuntimeError(f"LEAK {{leaks}}")
"""
    )
    if not confined(result):
        pytest.skip("this kernel lacks namespaces or Landlock")
    assert (result.verdict, result.failed) == (PASSES, []), result.reason


def test_a_candidate_that_kills_everyone_kills_no_one(judge: Callable[..., Judged]) -> None:
    first = judge("")
    if not confined(first):
        pytest.skip("without Landlock's signal scope this would end the whole session")
    # Signal 0 asks first, of every process: only when none can be reached is the real one sent.
    result = judge(
        _ANCESTORS
        + """
def reachable(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return pid != worker
if any(reachable(int(p)) for p in os.listdir("/proc") if p.isdigit()):
    raise RuntimeError("a process outside can be signalled")
os.kill(-1, signal.SIGKILL)
def run(x):
    for pid in (-1, judge, supervisor, template):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    return honest(x)
"""
    )
    assert (result.verdict, result.failed) == (PASSES, []), result.reason


RENAMED = "ctypes.CDLL(None).prctl(15, b'\\xff) R 1')"
"""The process calls itself something that is no UTF-8 and looks like other fields of /proc/PID/stat."""

FORKS = {
    "children": "[os.fork() or time.sleep(600) for _ in range(20)]",
    "daemons": """
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    os.wait()
""",
    "programs": "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)",
    "daemon-whose-name-is-no-text": f"""
if os.fork() == 0:
    {RENAMED}
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
""",
    "stopped-children": "if os.fork() == 0:\n    os.kill(os.getpid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize("name", FORKS)
def test_what_a_candidate_forks_does_not_outlive_its_trial(judge: Callable[..., Judged], name: str) -> None:
    result = judge(FORKS[name])
    assert result.error is None
    assert result.verdict in (PASSES, "not-comparable", "rejected")


@contextmanager
def seen_before_the_sweep(crew: Crew) -> Iterator[list[int]]:
    """Strangers that are there at the end of a trial, before what it left behind is ended."""
    seen: list[int] = []
    sweep = crew.fleet.sweep

    def look() -> None:
        seen.extend(crew.fleet.strangers(crew.fleet._watched))
        sweep()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew.fleet, "sweep", look)
        yield seen


def test_a_daemon_of_the_candidate_counts_as_a_stranger(crew: Crew, judge: Callable[..., Judged]) -> None:
    """It has a template's command line and, by adoption, a template's parent: it must not pass for one."""
    with seen_before_the_sweep(crew) as seen:
        judge(FORKS["daemons"])
        assert len(seen) == 5
        judge(FORKS["daemon-whose-name-is-no-text"])
        assert len(seen) == 6


def test_a_candidate_whose_name_is_no_text_is_judged_like_any_other(judge: Callable[..., Judged]) -> None:
    result = judge(RENAMED)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


HOPS = """
if os.fork() == 0:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if os.fork(): os._exit(0)
        {hop}
os.wait()
time.sleep(1)
"""


NEVER_DONE = """
import torch
def inputs(seed, device):
    return (torch.rand(64, 64, generator=torch.Generator(device).manual_seed(seed)),)
def run(x):
    y = x
    while not bool((y.abs() < 4).all()):
        y = y * 0.5 if {halved} else y + 0.0
    return y @ y
"""


@pytest.mark.parametrize(
    "halved",
    # In float64 the second is done at once.
    ["False", "y.dtype == torch.float64"],
    ids=["oracle", "baseline"],
)
def test_a_baseline_that_never_ends_on_a_probe_costs_that_probe_only(
    halved: str, judge: Callable[..., Judged], monkeypatch: pytest.MonkeyPatch
) -> None:
    from trackside.comparison import probing

    monkeypatch.setattr(probing, "_PROBE_SECONDS", 0.5)
    source = NEVER_DONE.format(halved=halved)
    run = source[source.index("def run") :]
    result = judge(run, source)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)
    probes = result.record["accuracy"]["probes"]
    assert re.search(r"TooLong at \S+base.py:\d+ in `\w+`: not done after", probes["huge"])
    assert probes["signs"] == "passed"


@pytest.mark.parametrize("hop", ["pass", "os.setsid()"])
def test_processes_that_start_the_next_and_end_are_counted_and_ended(
    hop: str, crew: Crew, judge: Callable[..., Judged]
) -> None:
    """Looked for one by one in /proc they are hardly ever found."""
    seen: list[int] = []
    sweep = crew.fleet.sweep

    def look() -> None:
        crew.fleet.strangers([])
        seen.append(crew.fleet.ended)
        sweep()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew.fleet, "sweep", look)
        judge("")
        judge(HOPS.format(hop=hop))
    assert seen[1] - seen[0] > 50_000_000


def test_a_process_whose_first_thread_has_ended_is_alive(crew: Crew, judge: Callable[..., Judged]) -> None:
    """The kernel calls it a zombie; its other threads work on."""
    with seen_before_the_sweep(crew) as seen:
        judge(
            """
if os.fork() == 0:
    if os.fork(): os._exit(0)
    threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()
    time.sleep(0.05)
    ctypes.CDLL(None).syscall(60, 0)
os.wait()
time.sleep(0.5)
"""
        )
    assert len(seen) == 1


def test_a_helper_that_has_itself_woken_while_frozen_is_found_out(
    judge: Callable[..., Judged], crew: Crew
) -> None:
    from trackside.comparison import trial

    ran: list[int] = []
    worked: list[int] = []

    def look(bench: Any, study: Any) -> list[str]:
        process = bench.arms["candidate"].process
        strangers = [bench.strangers()]
        time.sleep(0.3)
        strangers.append(bench.strangers())
        worked.append(used_beside(*strangers, ended=0))
        for _ in range(20):
            process.freeze()
            time.sleep(0.1)
            process.thaw()
        ran.append(sum(process.ran_frozen))
        return []

    asleep = "if os.fork() == 0:\n    time.sleep(600)\n"
    waking = """
if os.fork() == 0:
    signal.signal(signal.SIGCONT, lambda *_: None)
    libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
    event = struct.pack("<qii", 0, signal.SIGCONT, 0) + bytes(48)
    every = struct.pack("<qqqq", 0, 5_000_000, 0, 5_000_000)
    libc.timer_create(1, event, ctypes.byref(timer))
    libc.timer_settime(timer, 0, every, None)
    while True:
        time.sleep(0.03)
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until: pass
"""
    # A child that is forked beside other threads may find a lock taken for good: then there is another.
    for candidate in (asleep, waking, waking, waking):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trial, "probe", look)
            # As on a kernel without the filter, which refuses timers.
            patch.setattr(crew.fleet, "_unprotected", ["seccomp"])
            judge(candidate)
        if worked[-1] > 1_000_000:
            break
    assert worked[0] < 1_000_000 < worked[-1]
    assert ran[0] < 3_000_000 < ran[-1]


FORGE = """
import gc
worker = next(o for o in gc.get_objects() if type(o).__name__ == "_Worker")
channel, send = worker._channel, worker._channel.send
channel.send = lambda message, fds=(): send(forged(message), fds)
"""
FORGED = {
    "huge-host-time": """
def forged(message):
    return message | {"host": [10**400 for _ in message["host"]]} if "host" in message else message
""",
    "float-that-is-none": """
def run(x):
    return float(x.sum())
def forged(message):
    for leaf in message["leaves"] if isinstance(message.get("leaves"), list) else []:
        if leaf != "same":
            leaf[0]["value"] = {"float": "no number"}
    return message
""",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_number_that_is_none_is_the_candidate_s_fault(judge: Callable[..., Judged], name: str) -> None:
    baseline = BASELINE.replace("torch.relu(x) + 1", "float(x.sum())") if "float" in name else BASELINE
    result = judge(FORGED[name] + FORGE, baseline)
    assert result.error is None
    assert (result.verdict, result.failed) == ("rejected", ["protocol-intact"]), result.reason


def test_shared_memory_cannot_be_cut_off_under_the_judge_s_feet(judge: Callable[..., Judged]) -> None:
    result = judge(
        """
close = os.close
def keep(fd):
    if "trackside-arena" in os.readlink(f"/proc/self/fd/{fd}"):
        os.ftruncate(fd, 4096)
    close(fd)
os.close = keep
"""
    )
    assert result.error is None
    assert result.verdict == "rejected"


def test_a_file_in_place_of_the_candidate_s_own_folder_is_replaced(judge: Callable[..., Judged]) -> None:
    result = judge(
        "import shutil; home = os.environ['HOME']; shutil.rmtree(home, True); open(home, 'a').close()"
    )
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


def test_a_process_woken_while_frozen_is_found_out(judge: Callable[..., Judged]) -> None:
    """A helper that sends SIGCONT lets the candidate disturb the other arm's slots."""
    from trackside.comparison import trial

    ran: list[int] = []
    orphans: list[int] = []

    def look(bench: Any, study: Any) -> list[str]:
        process = bench.arms["candidate"].process
        bench.fleet.strangers([*(arm.process for arm in bench.arms.values()), bench.reference])
        orphans.append(len(bench.fleet.orphans))
        for _ in range(9):
            process.freeze()
            time.sleep(0.1)
            process.thaw()
        ran.append(sum(process.ran_frozen))
        return []

    spin = "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()\n"
    wake = """
worker = os.getpid()
if os.fork() == 0:
    while True:
        time.sleep(0.005)
        os.kill(worker, signal.SIGCONT)
"""
    orphan = wake.replace("if os.fork() == 0:", "if os.fork() == 0:\n    if os.fork(): os._exit(0)")
    for candidate in (spin, wake + spin, orphan + spin):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trial, "probe", look)
            judge(candidate)
    frozen, stopped_with_its_child, woken = ran
    assert frozen < 5_000_000
    assert stopped_with_its_child < 5_000_000
    assert woken > 50_000_000
    assert orphans == [0, 0, 1]


@pytest.mark.slow
def test_a_candidate_that_wakes_itself_beside_the_baseline_is_not_comparable(
    judge: Callable[..., Judged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trackside.store import lock

    monkeypatch.setattr(lock, "_lock_folder", lambda: tmp_path)
    result = judge(
        """
worker = os.getpid()
if os.fork() == 0:
    if os.fork(): os._exit(0)
    while True:
        time.sleep(0.003)
        os.kill(worker, signal.SIGCONT)
def burn():
    while True:
        torch.ones(1 << 16).sum()
threading.Thread(target=burn, daemon=True).start()
""",
        checks_only=False,
        quick=True,
        budget=5.0,
    )
    assert (result.verdict, result.failed) == ("not-comparable", ["no-leftovers"])
    assert "frozen" in result.reason


@pytest.mark.parametrize(
    "folder",
    [
        "for _ in range(1500): os.mkdir('deep'); os.chdir('deep')",
        "os.mkdir('shut'); Path('shut/file').write_text('x'); os.chmod('shut', 0)",
        "os.symlink('/etc', 'link'); os.mkfifo('pipe'); os.symlink('.', 'self')",
    ],
    ids=["deep", "without-permissions", "links-and-pipes"],
)
def test_whatever_a_candidate_builds_in_its_folder_is_removed(
    judge: Callable[..., Judged], folder: str
) -> None:
    assert judge(f"os.chdir(os.environ['TMPDIR'])\n{folder}").verdict == PASSES


# -- memory ------------------------------------------------------------------------------------------

_EAT = """
    kept = []
    for _ in range(24):
        kept.append(torch.ones(16_000_000))
        time.sleep(0.02)
    time.sleep(600)
"""


@pytest.fixture
def little_memory(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew.fleet, "_memory_limit", 700 << 20)


@pytest.mark.usefixtures("little_memory")
def test_a_candidate_that_eats_memory_is_ended_and_rejected(judge: Callable[..., Judged]) -> None:
    result = judge(f"def run(x):{_EAT}", build_timeout=20.0)
    assert (result.verdict, result.failed) == ("rejected", ["worker-survives"])
    assert re.search(r"used [\d.]+ GiB, more than allowed", result.reason), result.reason


@pytest.mark.usefixtures("little_memory")
def test_a_candidate_that_eats_memory_in_a_child_is_ended_and_rejected(judge: Callable[..., Judged]) -> None:
    child = f"\ndef eat():{_EAT}\nif os.fork() == 0:\n    eat()\ntime.sleep(2)"
    assert judge(child, build_timeout=20.0).verdict == "rejected"


@pytest.mark.usefixtures("little_memory")
def test_a_baseline_that_eats_memory_is_an_error_with_a_remedy(judge: Callable[..., Judged]) -> None:
    result = judge("", BASELINE.replace("def run(x):", f"import time\ndef run(x):{_EAT}"), build_timeout=20.0)
    assert result.error is not None
    assert "more than allowed" in result.error.message


def test_a_candidate_that_says_it_is_out_of_memory_is_rejected(judge: Callable[..., Judged]) -> None:
    result = judge("def run(x): return torch.empty(1 << 60)")
    assert (result.verdict, result.failed) == ("rejected", ["worker-survives"])


# -- baselines ---------------------------------------------------------------------------------------

BROKEN_BASELINES = {
    "raises": (
        "return torch.relu(x) + 1",
        "raise ValueError('no')",
        "workload",
        r"ValueError at .*base\.py:\d+",
    ),
    "segfaults": ("return torch.relu(x) + 1", "import ctypes; ctypes.string_at(0)", "workload", "SIGSEGV"),
    "returns-nothing": ("return torch.relu(x) + 1", "pass", "workload", "no output to check"),
    "returns-an-iterator": ("return torch.relu(x) + 1", "return iter([x])", "workload", "iterator"),
    "inputs-raise": ("g = torch", "raise KeyError('seed'); g = torch", "workload", "KeyError"),
    "inputs-segfault": ("g = torch", "import ctypes; ctypes.string_at(0); g = torch", "workload", "SIGSEGV"),
    "inputs-of-another-shape-each-time": ("64, 64", "64 + seed % 7, 64", "workload", "structure"),
    "inputs-are-sparse": (
        "(torch.randn(64, 64, generator=g, device=device),)",
        "torch.randn(64, 64, generator=g).relu().to_sparse()",
        "workload",
        "input 0 is a tensor with layout torch.sparse_coo; needed: ordinary strided tensors",
    ),
    "returns-a-quantised-tensor": (
        "return torch.relu(x) + 1",
        "return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)",
        "workload",
        "the baseline's output out is a tensor of qint8; needed: floats",
    ),
    "inputs-hold-an-object": ("(torch.randn(", "(object(), torch.randn(", "workload", "object"),
    "hangs": ("return torch.relu(x) + 1", "import time; time.sleep(600)", "timeout", "no answer"),
    "raises-on-import": (
        "import torch",
        "raise ImportError('no_such_package')",
        "workload",
        "no_such_package",
    ),
}


@pytest.mark.parametrize("name", BROKEN_BASELINES)
def test_a_broken_baseline_is_an_error_that_says_what_where_and_what_to_do(
    judge: Callable[..., Judged], name: str
) -> None:
    old, new, kind, cause = BROKEN_BASELINES[name]
    seconds = HANG_SECONDS if kind == "timeout" else BUILD_SECONDS
    result = judge("", BASELINE.replace(old, new, 1), build_timeout=seconds)
    assert result.error is not None
    assert (result.error.kind, result.verdict) == (kind, "inconclusive")
    assert re.search(cause, result.error.message), result.error.message
    assert result.error.remedy
    assert result.record["status"] == "failed"


def test_a_baseline_that_fails_its_own_oracle_is_inconclusive(judge: Callable[..., Judged]) -> None:
    result = judge("", BASELINE + "\ndef reference(x):\n    return torch.relu(x) + 2\n")
    assert (result.verdict, result.failed) == ("inconclusive", ["baseline-right"])
    assert "oracle" in result.reason


def test_a_baseline_that_is_not_deterministic_is_inconclusive_and_says_so(
    judge: Callable[..., Judged],
) -> None:
    drift = "import os\n    return torch.relu(x) + 1 + int.from_bytes(os.urandom(2)) / 1e5"
    result = judge("", BASELINE.replace("return torch.relu(x) + 1", drift))
    assert result.verdict == "inconclusive"
    assert re.search("determin|same inputs|random|differs", result.reason), result.reason


# -- isolation ---------------------------------------------------------------------------------------


def test_missing_isolation_is_named_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(BASELINE)
    (tmp_path / "new.py").write_text(HONEST)
    options = Options(
        tmp_path / "base.py",
        tmp_path / "new.py",
        checks_only=True,
        unprotected=("namespaces", "landlock"),
        store=tmp_path / "store",
    )
    record = run_trial(options)
    check = next(c for c in record.checks if c.id == "isolation")
    assert check.status == "warn"
    assert "namespace" in check.detail
    assert "Landlock" in check.detail
    assert not record.certified
    assert record.options["unprotected"] == ["namespaces", "landlock"]


LOWERING = (
    "task-is-sensitive",
    "holds-on-probes",
    "oracle-available",
    "output-structure",
    "isolation",
    "machine-quiet",
    "clocks-agree",
)


@pytest.mark.parametrize("warned", [*LOWERING, "state-matches"])
def test_a_warning_about_what_a_certificate_rests_on_lowers_it(tmp_path: Path, warned: str) -> None:
    options, ledger = Options(tmp_path / "base.py", tmp_path / "new.py"), Ledger()
    outcomes = [Outcome(None, "faster", [], ledger)]
    for check in LOWERING:
        ledger.passed(check, "as it should be")
    assert grade(options, outcomes, "faster") == "full"
    ledger.warned(warned, "not quite")
    assert grade(options, outcomes, "faster") == "reduced"


def test_two_pairs_are_not_enough_for_a_certificate(tmp_path: Path) -> None:
    ledger = Ledger()
    for check in LOWERING:
        ledger.passed(check, "as it should be")
    outcomes = [Outcome(None, "faster", [], ledger)]
    grades = [
        grade(Options(tmp_path / "a", tmp_path / "b", pairs=pairs), outcomes, "faster") for pairs in (2, 3)
    ]
    assert grades == ["none", "full"]


@pytest.mark.parametrize("where", ["baseline", "candidate", "both"])
def test_a_default_device_set_on_import_is_no_hook(judge: Callable[..., Judged], where: str) -> None:
    line = "import torch\ntorch.set_default_device('cpu')\n"
    baseline = line + textwrap.dedent(BASELINE) if where != "candidate" else BASELINE
    result = judge(line if where != "baseline" else "", baseline=baseline)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


SHAPES = """
import torch
from typing import NamedTuple

class Size(NamedTuple):
    rows: int
    columns: int

shapes = [Size(4, 8), (2, 16), {8: 8}, torch.float64]

def inputs(seed, device, shape):
    g = torch.Generator(device).manual_seed(seed)
    if shape is torch.float64:
        return torch.randn(8, 8, generator=g, device=device)
    size = (shape.rows, shape.columns) if isinstance(shape, Size) else shape
    size = (8, shape[8]) if isinstance(shape, dict) else size + ()
    return torch.randn(*size, generator=g, device=device)

def run(x):
    return x * 2
"""


def test_a_shape_is_any_value_and_reaches_inputs_as_it_is(judge: Callable[..., Judged]) -> None:
    result = judge("def run(x): return x + x", baseline=SHAPES)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)
    shown = [entry["shape"] for entry in result.record["shapes"]]
    assert shown == [[4, 8], [2, 16], {"8": 8}, "torch.float64"]


WITH_STATE = """
import torch

def setup(seed, device):
    return torch.ones(64, device=device)

def inputs(seed, device):
    return torch.randn(64, generator=torch.Generator(device).manual_seed(seed), device=device)

def run(scale, xDEFAULT):
    return x * scale
"""


@pytest.mark.parametrize(
    ("default", "candidate"),
    [
        ("", "def run(scale, x, block=256): return scale * x"),
        (", eps=1e-5", "def run(scale, x): return scale * x"),
        ("", "def run(*args): return args[0] * args[1]"),
        ("", "def run(x): return x.clone()"),
        ("", "def run(x, block=256): return x.clone()"),
    ],
    ids=["a default more", "a default less", "any number", "inputs alone", "inputs and a default"],
)
def test_a_candidate_without_set_up_has_the_baseline_s_where_its_run_takes_it(
    judge: Callable[..., Judged], default: str, candidate: str
) -> None:
    result = judge(candidate, baseline=WITH_STATE.replace("DEFAULT", default))
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


GRADIENT_OF_AN_INPUT = """
import torch

def inputs(seed, device):
    return torch.randn(8, 8, generator=torch.Generator(device).manual_seed(seed), device=device)

def run(x):
    x.requires_grad_()
    x.grad = None if ANEW else x.grad
    x.sin().sum().backward()
    return x.grad.clone()
"""


@pytest.mark.parametrize("anew", [True, False])
def test_inputs_that_a_call_asks_a_gradient_of_are_plain_again_in_the_next(
    judge: Callable[..., Judged], anew: bool
) -> None:
    baseline = GRADIENT_OF_AN_INPUT.replace("ANEW", str(anew))
    candidate = "def run(x):" + baseline.split("def run(x):")[1]
    result = judge(candidate, baseline=baseline)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


def test_a_candidate_may_bend_its_inputs_as_the_baseline_does(judge: Callable[..., Judged]) -> None:
    baseline = GRADIENT_OF_AN_INPUT.split("def run")[0] + "def run(x):\n    return x.t_() * 2\n"
    result = judge("def run(x): return 2 * x.t_()", baseline=baseline)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)
    result = judge("def run(x): return 2 * x.t_()", baseline=baseline.replace("x.t_()", "x.t()"))
    assert result.failed == ["inputs-unchanged"]


ORDERED = """
import torch
from collections import OrderedDict

def setup(seed, device):
    return {"cache": OrderedDict(first=torch.zeros(4)), "n": torch.zeros(())}

def inputs(seed, device):
    return torch.randn(4, generator=torch.Generator(device).manual_seed(seed), device=device)

def run(state, x):
    state["n"] += 1
    state["cache"][len(state["cache"])] = x * 2
    state["cache"].move_to_end("first")
    return torch.stack([v for v in state["cache"].values()]) + state["n"]
"""


def test_an_ordered_dict_of_the_state_is_put_back_in_order(judge: Callable[..., Judged]) -> None:
    candidate = "def run(state, x):" + ORDERED.split("def run(state, x):")[1]
    result = judge("from collections import OrderedDict\n" + candidate, baseline=ORDERED)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)


def test_inputs_of_a_class_of_their_own_are_refused_by_name(judge: Callable[..., Judged]) -> None:
    baseline = """
        import torch
        from typing import NamedTuple
        class Batch(NamedTuple):
            x: torch.Tensor
        def inputs(seed, device):
            return {"batch": Batch(torch.randn(4, generator=torch.Generator().manual_seed(seed)))}
        def run(given):
            return given["batch"].x * 2
    """
    error = judge("", baseline=baseline).error
    assert error is not None
    assert "inputs hold a Batch; needed: tensors, numbers, strings, None, nested in" in error.message


def test_a_file_whose_name_is_not_text_is_compared_like_any_other(
    judge: Callable[..., Judged], tmp_path: Path
) -> None:
    judge("")
    name = os.fsdecode(b"new\xff.py")
    (tmp_path / "files" / name).write_bytes((tmp_path / "files" / "new.py").read_bytes())
    options = Options(
        tmp_path / "files" / "base.py", tmp_path / "files" / name, checks_only=True, store=tmp_path / "store"
    )
    assert run_trial(options).verdict == PASSES

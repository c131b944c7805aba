"""Bad input, real processes: each ends with the right verdict or a clear error, and leaves nothing behind."""

import re
from collections.abc import Callable

import pytest
from tests.comparison.judged import BUILD_SECONDS, HANG_SECONDS, PASSES, Judged
from tests.comparison.program import BASELINE

from trackside.comparison.trial import Crew


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

    monkeypatch.setattr(probing, "PROBE_SECONDS", 0.5)
    source = NEVER_DONE.format(halved=halved)
    run = source[source.index("def run") :]
    result = judge(run, source)
    assert (result.verdict, result.failed, result.error) == (PASSES, [], None)
    probes = result.record["accuracy"]["probes"]
    assert re.search(r"TooLong at \S+base.py:\d+ in `\w+`: not done after", probes["huge"])
    assert probes["signs"] == "passed"


# -- memory ------------------------------------------------------------------------------------------

_EAT = """
    kept = []
    for _ in range(24):
        kept.append(torch.ones(16_000_000))
        time.sleep(0.02)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("otherwise", "check"),
    [
        ("raise ValueError('too large for my table')", "worker-survives"),
        ("os._exit(3)", "worker-survives"),
        ("return honest(x).double()", "output-structure"),
        ("return honest(x) * 1.5", "holds-on-probes"),
    ],
)
def test_who_fails_on_a_probe_only_is_told_how_to_rule_such_inputs_out(
    judge: Callable[..., Judged], otherwise: str, check: str
) -> None:
    result = judge(f"def run(x):\n    if x.abs().max() > 100: {otherwise}\n    return honest(x)")
    assert (result.verdict, result.failed) == ("rejected", [check])
    assert "probe `" in result.reason
    assert result.reason.endswith("; if such inputs cannot occur, declare `domain` in the baseline's file")


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

"""How candidates are usually checked, with the usual holes: what the corpus' false cases have to win against.

`in-process`: one interpreter, fixed seeds, the reference first, allclose at 1e-2, warm-up, then the mean over
calls on the same inputs. `subprocess`: a child checks itself (candidate first, then the reference on the same
tensors; largest difference), reports a median, and its parent believes what was printed. `bench-only`: each
file is timed by itself, cold, on its own inputs, and nothing is compared. Each trait is public practice.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib.util
import json
import math
import os
import pickle
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.redteam.corpus import Case, case_named

__all__ = ["NaiveResult", "run_naive"]

ROOT = Path(__file__).resolve().parents[2]
SEEDS = (42, 43, 44)
SETUP_SEED = 0
WARM_UP = 5
CALLS = 30
COLD_CALLS = 5  # few, as in a script somebody runs by hand
CHILD_TIMEOUT_S = 25.0  # a child imports torch (2-4 s on a busy machine) and makes ~70 calls of a few ms
OUTER_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class NaiveResult:
    """What the usual check concludes."""

    accepted: bool
    speedup: float | None
    detail: str = ""

    @property
    def fooled(self) -> bool:
        """Whether somebody would have reported this as a gain, or let it through without an answer."""
        return self.accepted and (self.speedup is None or self.speedup > 1.05)


# --- loading --------------------------------------------------------------------------------------


def _import_file(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


class Loaded:
    """A workload file in any of the three formats, with its state already made."""

    def __init__(self, path: Path, name: str) -> None:
        if path.is_dir():
            sys.path.insert(0, str(path))
            path = path / "reference.py"
            name = "reference"
        self.module = module = _import_file(path, name)
        self.shapes: list[Any] = getattr(module, "shapes", [None])
        self.call: Callable[..., Any]
        if hasattr(module, "custom_kernel") or hasattr(module, "ref_kernel"):
            kernel = "custom_kernel" if hasattr(module, "custom_kernel") else "ref_kernel"
            self.call = lambda *args: getattr(module, kernel)(args)
        elif hasattr(module, "ModelNew") or hasattr(module, "Model"):
            self.call = self._model(module)
        elif hasattr(module, "setup"):
            state = module.setup(SETUP_SEED, "cpu")
            self.call = lambda *args: module.run(state, *args)
        else:
            self.call = lambda *args: module.run(*args)

    def _model(self, module: ModuleType) -> Callable[..., Any]:
        import torch

        torch.manual_seed(SETUP_SEED)
        init = module.get_init_inputs() if hasattr(module, "get_init_inputs") else self.init_inputs
        made: Callable[..., Any] = getattr(module, "ModelNew" if hasattr(module, "ModelNew") else "Model")(
            *init
        )
        return made

    init_inputs: Any = ()

    def has_inputs(self) -> bool:
        return any(hasattr(self.module, name) for name in ("inputs", "get_inputs", "generate_input"))

    def inputs(self, seed: int, shape: Any = None) -> tuple[Any, ...]:
        import torch

        if hasattr(self.module, "generate_input"):
            return tuple(self.module.generate_input(rows=512, columns=4096, seed=seed))
        if hasattr(self.module, "get_inputs"):
            torch.manual_seed(seed)
            return tuple(self.module.get_inputs())
        made = self.module.inputs(seed, "cpu") if shape is None else self.module.inputs(seed, "cpu", shape)
        return tuple(made)


def _load_pair(case: Case) -> tuple[Loaded, Callable[[], Loaded]]:
    baseline = Loaded(case.baseline_path, "baseline")
    if hasattr(baseline.module, "get_init_inputs"):
        Loaded.init_inputs = baseline.module.get_init_inputs()
    return baseline, lambda: Loaded(case.candidate_path, "candidate")


# --- the usual pieces -----------------------------------------------------------------------------


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from _leaves(tree[key])
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _leaves(item)
    else:
        yield tree


def _clones(tree: Any) -> list[Any]:
    return [leaf.clone() for leaf in _leaves(tree)]


def _snapshot(leaf: Any) -> Any:
    import numpy as np
    import torch

    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else torch.from_numpy(np.asarray(leaf))


def matches(expected: Any, got: Any, rtol: float = 1e-2, atol: float = 1e-2) -> bool:
    """allclose over all outputs, the sides brought to one dtype first."""
    import torch

    for want, have in zip(_leaves(expected), _leaves(got), strict=True):
        have = _snapshot(have)
        if not torch.allclose(want.float(), have.float(), rtol=rtol, atol=atol, equal_nan=True):
            return False
    return True


def largest_difference_is_small(expected: Any, got: Any) -> bool:
    """The other common check, which NaN passes: the largest difference is not above the limit."""
    for want, have in zip(_leaves(expected), _leaves(got), strict=True):
        if (want.float() - have.float()).abs().max() > 1e-2 * max(1.0, float(want.float().abs().max())):
            return False
    return True


def bench_mean(call: Callable[..., Any], args: tuple[Any, ...]) -> float:
    for _ in range(WARM_UP):
        call(*args)
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call(*args)
        times.append(time.perf_counter() - start)
    return statistics.fmean(times)


def bench_median(call: Callable[..., Any], args: tuple[Any, ...]) -> float:
    for _ in range(WARM_UP):
        call(*args)
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call(*args)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def bench_cold(call: Callable[..., Any], args: tuple[Any, ...]) -> float:
    start = time.perf_counter()
    for _ in range(COLD_CALLS):
        with contextlib.suppress(Exception):
            call(*args)
    return (time.perf_counter() - start) / COLD_CALLS


# --- the three variants ---------------------------------------------------------------------------


def _in_process(case: Case) -> NaiveResult:
    baseline, load_candidate = _load_pair(case)
    candidate = load_candidate()
    ratios = []
    for shape in baseline.shapes:
        trials = [baseline.inputs(seed, shape) for seed in SEEDS]
        # Only the first shape is checked: sizes are usually added to a benchmark, not to its test.
        for args in trials if shape is baseline.shapes[0] else []:
            import torch

            torch.manual_seed(0)
            # Cloned and let go, as harnesses do that move the reference's result to the host.
            expected = _clones(baseline.call(*copy.deepcopy(args)))
            torch.manual_seed(0)
            got = candidate.call(*args)
            if not matches(expected, got):
                return NaiveResult(False, None, "outputs differ")
        candidate_s = bench_mean(candidate.call, trials[0])
        baseline_s = bench_mean(baseline.call, trials[0])
        ratios.append(baseline_s / max(candidate_s, 1e-9))
    return NaiveResult(True, math.exp(sum(math.log(max(r, 1e-9)) for r in ratios) / len(ratios)))


def _bench_only(case: Case) -> NaiveResult:
    baseline, load_candidate = _load_pair(case)
    args = baseline.inputs(SEEDS[0], baseline.shapes[0])
    baseline_s = bench_cold(baseline.call, args)
    candidate = load_candidate()
    if candidate.has_inputs():
        args = candidate.inputs(SEEDS[0])
    candidate_s = bench_cold(candidate.call, args)
    return NaiveResult(True, baseline_s / max(candidate_s, 1e-9))


def _self_reporting_child(case: Case, report: Path) -> None:
    """Runs in the child of the `subprocess` variant: prints what its parent will believe."""
    import torch

    baseline, load_candidate = _load_pair(case)
    candidate = load_candidate()
    passed = True
    got: Any = None
    shape = baseline.shapes[0]
    for seed in SEEDS:
        args = baseline.inputs(seed, shape)
        torch.manual_seed(0)
        got = candidate.call(*args)
        torch.manual_seed(0)
        if hasattr(baseline.module, "check_implementation"):
            passed = passed and baseline.module.check_implementation(args, got)[0]
        else:
            passed = passed and largest_difference_is_small(baseline.call(*args), got)
    args = baseline.inputs(SEEDS[0], shape)
    candidate_s = bench_median(candidate.call, args)
    baseline_s = bench_median(baseline.call, args)
    with contextlib.suppress(Exception), report.open("wb") as file:
        pickle.dump({"passed": passed, "sample": got}, file)
    print("PASS" if passed else "FAIL", f"speedup={baseline_s / max(candidate_s, 1e-9):.4f}", flush=True)


def judge_line(line: str) -> NaiveResult | None:
    """One line of the child's output, if it is a verdict."""
    found = re.search(r"\b(PASS|FAIL)\b(?: speedup=([0-9.]+))?", line)
    if not found:
        return None
    return NaiveResult(found[1] == "PASS", float(found[2]) if found[2] else None, line.strip()[:80])


def _subprocess(case: Case, result_path: Path) -> None:
    """The trusting parent: the last verdict line counts, an exit code of 0 without one is a pass."""
    report = result_path.with_suffix(".pickle")
    command = [sys.executable, "-m", "tests.redteam.naive", case.name, "--child", str(report)]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    timed_out = False
    try:
        out, _ = child.communicate(timeout=CHILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        timed_out = True
        child.kill()
        out, _ = child.communicate()
    verdicts = [v for v in map(judge_line, out.decode(errors="replace").splitlines()) if v]
    if report.exists():
        with contextlib.suppress(Exception), report.open("rb") as file:
            pickle.load(file)  # kept for the log
    if verdicts:
        result = accept(verdicts[-1])
    elif child.returncode == 0 and not timed_out:
        result = accept(NaiveResult(True, None, "exit code 0"))
    else:
        result = accept(NaiveResult(False, None, f"exit code {child.returncode}"))
    _write(result_path, result)


def accept(result: NaiveResult) -> NaiveResult:
    """Where a fuller harness would post the score."""
    return result


def _write(path: Path, result: NaiveResult) -> None:
    path.write_text(
        json.dumps({"accepted": result.accepted, "speedup": result.speedup, "detail": result.detail})
    )


# --- running one case without being hurt by it ----------------------------------------------------


def run_naive(case: Case, variant: str | None = None) -> NaiveResult:
    """Runs `case` in the named variant (its own by default), in a session that is ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="naive-", ignore_cleanup_errors=True) as folder:
        result_path = Path(folder) / "naive-result.json"
        command = [sys.executable, "-m", "tests.redteam.naive", case.name, "--variant", variant or case.naive]
        environment = dict(os.environ, TMPDIR=folder, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
        with open(os.devnull, "rb") as nothing, (Path(folder) / "log").open("w+b") as log:
            process = subprocess.Popen(
                [*command, "--result", str(result_path)],
                cwd=ROOT,
                env=environment,
                stdin=nothing,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(OUTER_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                # The whole session of this one case, by the id we were given.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.seek(0)
            tail = log.read()[-2000:].decode(errors="replace")
        try:
            found = json.loads(result_path.read_text())
        except (OSError, ValueError):
            return NaiveResult(False, None, f"no result, exit code {process.returncode}: {tail}")
        return NaiveResult(bool(found["accepted"]), found["speedup"], str(found.get("detail", "")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--variant", choices=("in-process", "subprocess", "bench-only"))
    parser.add_argument("--result", type=Path)
    parser.add_argument("--child", type=Path)
    arguments = parser.parse_args()
    case = case_named(arguments.name)
    if arguments.child or (arguments.result and arguments.variant != "subprocess"):
        import torch

        torch.set_num_threads(1)
    if arguments.child:
        _self_reporting_child(case, arguments.child)
    elif arguments.result is None:
        result = run_naive(case, arguments.variant)
        speedup = "no figure" if result.speedup is None else f"{result.speedup:.2f}x"
        print(f"{case.name}: {'accepted' if result.accepted else 'refused'}, {speedup} {result.detail}")
    elif arguments.variant == "subprocess":
        _subprocess(case, arguments.result)
    else:
        run = _in_process if arguments.variant == "in-process" else _bench_only
        _write(arguments.result, run(case))


if __name__ == "__main__":
    main()

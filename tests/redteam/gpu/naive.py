"""A KernelBench-style harness as the corpus's foil: shows which cases fool the usual way of measuring.

Same inputs throughout, events on the current stream behind an L2 flush, allclose at 1e-2 after a device sync,
candidate and reference in one process. Run as `python -m tests.redteam.gpu.naive [NAME…]`.
"""

import contextlib
import fcntl
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from multiprocessing import connection
from pathlib import Path

from tests.redteam.gpu.corpus import CASES

__all__ = ["main", "run_all", "run_naive"]

_DEVICE = "cuda"
_ROOT = Path(__file__).resolve().parents[1]
_TRIALS = 3
_WARM_UP = 3
_CALLS = 25
_FLUSH_BYTES = 256 << 20  # as KernelBench; the H200 has 60 MB of L2
_FOOLED_ABOVE = 1.05  # a reported speedup that somebody would act on
_AT_ONCE = 4  # children that may import and compile while one of them measures
_LIMITS_S = {"preparing": 60.0, "measuring": 15.0}  # the first covers context, compilation and the queue
_ALL_S = 135.0  # no case starts, and after a grace of ten seconds none goes on


def main(names):
    """Runs the named cases, or all, and prints one JSON line for each; returns the exit code."""
    known = {case.name: case for case in CASES}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown case {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    # Longest preparation first, so that compilation overlaps the other cases' measurements.
    cases = [known[name] for name in names] or sorted(CASES, key=lambda case: case.family != "compile")
    results = []
    for result in run_all(cases):
        print(json.dumps(result), flush=True)
        results.append(result)
    summary = {
        "cases": len(results),
        "false_accepted": sum(r["kind"] == "false" and r["accepted"] for r in results),
        "fooled": sum(r["fooled"] for r in results),
        "honest_refused": sum(r["kind"] == "honest" and not r["accepted"] for r in results),
        "errors": sum(r["error"] is not None for r in results),
    }
    print(json.dumps({"summary": summary}), flush=True)
    return 0


def run_naive(case):
    """Runs one case in a child process, prints its JSON line and returns it as a dict."""
    (result,) = run_all([case])
    print(json.dumps(result), flush=True)
    return result


def run_all(cases):
    """Yields the result of each case as it comes; cases share the device, one measuring at a time."""
    # Children fork from a process that has torch but no CUDA context: four seconds of import saved on each.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch  # noqa: F401

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401
    context = multiprocessing.get_context("fork")
    deadline = time.monotonic() + _ALL_S
    waiting, running = list(cases), {}
    with tempfile.TemporaryDirectory() as folder:
        turn = Path(folder) / "turn"
        turn.touch()
        while waiting or running:
            while waiting and len(running) < _AT_ONCE and time.monotonic() < deadline:
                case = waiting.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(case, theirs, turn))
                process.start()
                theirs.close()
                running[ours] = (case, process, time.monotonic() + _LIMITS_S["preparing"])
            if time.monotonic() >= deadline:
                for case in waiting:
                    yield _result(case, error="not run: the time for all cases is spent")
                waiting.clear()
            yield from _collect(running, deadline)


def _collect(running, deadline):
    for ours in connection.wait(list(running), timeout=0.1):
        case, process, _ = running[ours]
        try:
            message = ours.recv()
        except EOFError:
            del running[ours]
            process.join(1.0)
            process.kill()  # a candidate's thread may keep it alive; what it had to say is lost
            yield _result(case, error=f"child ended without a result (exit code {process.exitcode})")
            continue
        if isinstance(message, str):
            running[ours] = (case, process, time.monotonic() + _LIMITS_S[message])
            continue
        del running[ours]
        process.join(0.2)
        process.kill()
        process.join()
        yield message
    for ours, (case, process, limit) in list(running.items()):
        if time.monotonic() > min(limit, deadline + 10.0):
            del running[ours]
            process.kill()
            process.join()
            yield _result(case, error="timed out")


def _child(case, pipe, turn):
    # The harness's own output is JSON on stdout; what a candidate prints must not mix with it.
    os.dup2(2, 1)
    began = time.monotonic()
    try:
        result = _measure(case, pipe, turn)
    except Exception as error:  # a candidate may raise anything: it is a refusal, with its reason
        result = _result(case, error=f"{type(error).__name__}: {error}"[:500])
    result["seconds"] = round(time.monotonic() - began, 2)
    pipe.send(result)
    pipe.close()
    os._exit(0)  # candidates leave threads, modes and hooks behind


def _measure(case, pipe, turn):
    import torch

    base = _load(_ROOT / case.baseline, "baseline", _DEVICE)
    args, base_state = base.inputs(0), base.setup(0)
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=_DEVICE)
    base.call(base_state, args)
    torch.cuda.synchronize()
    # The reference is timed before the candidate's file is read, as by harnesses that keep reference times.
    with _device(pipe, turn):
        base_us = _time_calls(lambda: base.call(base_state, args), flush)
    candidate = _load(_ROOT / case.candidate, "candidate", _DEVICE, base.module)
    candidate_state = candidate.setup(0)
    candidate.call(candidate_state, args)
    torch.cuda.synchronize()
    with _device(pipe, turn):
        accepted, worst = _correct(base, candidate, args)
        candidate_us = _time_calls(lambda: candidate.call(candidate_state, args), flush)
        torch.cuda.synchronize()
    return _result(case, accepted, base_us, candidate_us, worst)


@contextlib.contextmanager
def _device(pipe, turn):
    """One child at a time on the device; the kernel frees the lock of a child that is killed."""
    with turn.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pipe.send("measuring")
        yield
    pipe.send("preparing")


def _time_calls(call, flush):
    import torch

    for _ in range(_WARM_UP):
        output = call()
    torch.cuda.synchronize()
    times = []
    for _ in range(_CALLS):
        flush.zero_()
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        output = call()  # kept until the next one replaces it, as in most scripts
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000.0)
    del output
    return statistics.median(times)


def _correct(base, candidate, args):
    import torch

    worst = 0.0
    for _ in range(_TRIALS):
        base_state, candidate_state = base.setup(0), candidate.setup(0)
        expected = base.call(base_state, args)
        found = candidate.call(candidate_state, args)
        torch.cuda.synchronize()
        pairs = list(zip(_leaves(expected), _leaves(found), strict=True))
        for want, got in pairs:
            if want.shape != got.shape or not torch.allclose(want, got, rtol=1e-2, atol=1e-2):
                return False, float("nan")
            worst = max(worst, (want.float() - got.float()).abs().max().item())
    return True, worst


def _leaves(tree):
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in _leaves(tree[key])]
    if isinstance(tree, (list, tuple)):
        return [leaf for part in tree for leaf in _leaves(part)]
    return [tree]


def _result(case, accepted=False, base_us=None, candidate_us=None, worst=None, error=None):
    speedup = base_us / candidate_us if base_us and candidate_us else None
    return {
        "name": case.name,
        "kind": case.kind,
        "accepted": accepted,
        "speedup": None if speedup is None else round(speedup, 3),
        "fooled": bool(case.kind == "false" and accepted and speedup and speedup > _FOOLED_ABOVE),
        "baseline_us": None if base_us is None else round(base_us, 2),
        "candidate_us": None if candidate_us is None else round(candidate_us, 2),
        "max_abs_error": None if worst is None or worst != worst else worst,
        "error": error,
    }


class _Native:
    """A file in Trackside's own format; the candidate takes inputs and a missing setup from the baseline."""

    def __init__(self, module, device, baseline=None):
        self.module, self._device = module, device
        self._setup = getattr(module, "setup", None) or getattr(baseline, "setup", None)

    def inputs(self, seed):
        return self.module.inputs(seed, self._device)

    def setup(self, seed):
        return None if self._setup is None else self._setup(seed, self._device)

    def call(self, state, args):
        return self.module.run(*args) if state is None else self.module.run(state, *args)


class _KernelBench:
    """A KernelBench file, constructed as that harness does: one seed, parameters at their defaults."""

    def __init__(self, module, name, device, init_inputs):
        self.module, self._name, self._device, self._init = module, name, device, init_inputs

    def inputs(self, seed):
        import torch

        torch.manual_seed(seed)
        return [x.to(self._device) for x in self.module.get_inputs()]

    def setup(self, seed):
        import torch

        torch.manual_seed(seed)
        return getattr(self.module, self._name)(*self._init).to(self._device)

    def call(self, state, args):
        import torch

        with torch.no_grad():
            return state(*args)


def _load(path, role, device, baseline=None):
    spec = importlib.util.spec_from_file_location(f"naive_{role}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    for name in ("ModelNew", "Model"):
        if hasattr(module, name) and not hasattr(module, "run"):
            return _KernelBench(module, name, device, (baseline or module).get_init_inputs())
    return _Native(module, device, baseline)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The trusted process: it feeds inputs, takes private copies of outputs, runs the oracle and measures errors.

It runs the baseline's `inputs`, `setup` and `reference`; the candidate's file never enters it. It
measures and reports; the judge decides.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from trackside.comparison import accuracy, matching, near_ties, rounding, sets, untested
from trackside.comparison.exchange import Exchange, find_device
from trackside.comparison.oracle import Answer, Oracle
from trackside.comparison.rerounding import HALF_ULP
from trackside.records.errors import TracksideError
from trackside.workload import formats, state, tree
from trackside.workload.channel import Channel
from trackside.workload.memory import ArenaShape
from trackside.workload.sandbox import Isolation
from trackside.workload.time_limit import allowed, time_limit

__all__ = ["serve"]

# Relative moves that show whether the oracle's path is float64 throughout: lost in float32, kept in float64.
_BITS_JITTER = 2.0**-40
# Single-element changes that must all reach the output before an input's bytes count as necessary.
_NECESSITY_TRIES = 6
# What adding 4096 terms one after the other makes of one rounding: the root of their number.
_ROUNDED_INSIDE = 64


def serve(channel: Channel, request: dict[str, Any], isolation: Isolation) -> None:
    """Answer the judge until it says exit."""
    _Reference(channel, request["device"]).loop()


class _Reference:
    def __init__(self, channel: Channel, device: str) -> None:
        self._channel = channel
        self._device = device
        self._exchange: Any = None
        self._workload: Any = None
        self._feeder: Any = None
        self._oracle: Any = None
        self._state: Any = None
        self._sets: dict[int, sets.InputSet] = {}
        self._earlier: dict[int, list[sets.InputSet]] = {}
        self._spec: dict[str, Any] = {}
        self._answers: dict[tuple[int, int], Answer] = {}
        self._tallies: dict[str, matching.Tally] = defaultdict(matching.Tally)
        self._usual_seconds = 0.0

    def loop(self) -> None:
        self._channel.send({"ready": True})
        while True:
            request = self._channel.receive(None)
            if request["op"] == "exit":
                return
            try:
                answer = getattr(self, f"_op_{request['op']}")(request)
            except BaseException as error:
                answer = {
                    "raised": {
                        "type": "" if isinstance(error, TracksideError) else type(error).__name__,
                        "message": str(error)[:2000],
                        "where": _user_line(error),
                        "memory": formats.is_out_of_memory(error) or getattr(error, "out_of_memory", False),
                        "kind": error.kind if isinstance(error, TracksideError) else None,
                        "traceback": "".join(traceback.format_exception(error))[-4000:],
                    }
                }
            self._channel.send(answer)

    # -- the baseline's file ---------------------------------------------------------------------

    def _op_load(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._device != "cpu":
            find_device(self._device)
        self._exchange = Exchange(self._device)
        w = self._workload = formats.load(Path(request["path"]), role="baseline", baseline_format=None)
        if w.no_grad:
            torch.set_grad_enabled(False)
        self._feeder = sets.Feeder(w, self._device)
        self._oracle = Oracle(w, self._device)
        return {
            "format": w.format,
            "tolerance": w.tolerance,
            "outputs": w.outputs,
            "shapes": [_shown(shape) for shape in w.shapes or ()],
            "probe_shapes": [_shown(shape) for shape in w.probe_shapes or ()],
        }

    def _op_setup(self, request: dict[str, Any]) -> dict[str, Any]:
        self._answers.clear()
        self._state = (
            self._workload.setup(request["seed"], self._device) if self._workload.has_state else None
        )
        formats.confine_default_device(self._workload)
        self._oracle.set_state(self._state, lambda: self._workload.setup(request["seed"], self._device))
        digest = None
        if isinstance(self._state, torch.nn.Module):
            digest = formats.parameter_digest(self._state)
            if self._workload.init_noise is not None:
                digest["statistics"] = self._workload.init_noise.statistics
            if request.get("save"):
                torch.save(self._state.state_dict(), request["save"])
        return {"digest": digest}

    def _op_contract(self, request: dict[str, Any]) -> dict[str, Any]:
        self._oracle.changed_inputs = request["inputs"]
        self._oracle.changed_state = request["state"]
        self._answers.clear()
        return {}

    # -- sets ------------------------------------------------------------------------------------

    def _op_specify(self, request: dict[str, Any]) -> dict[str, Any]:
        """Draw two sets, study them, and say what arguments look like."""
        first = self._feeder.draw(request["seeds"][0], request["shape"])
        second = self._feeder.draw(request["seeds"][1], request["shape"])
        self._spec = first.specification(self._device)
        if second.specification(self._device) != self._spec:
            raise ValueError(
                "`inputs` gives other shapes, types or plain values for another seed; needed: the same "
                "structure for every seed, and what varies in tensors: make numbers that vary, and lists of "
                "them, tensors"
            )
        study = self._feeder.study(first, second)
        self._sets = {}
        self._earlier = {}
        return {"spec": self._spec, **study}

    def _op_draw(self, request: dict[str, Any]) -> dict[str, Any]:
        kind = request["kind"]
        if kind == "fresh":
            made = self._feeder.draw(request["seed"], request["shape"])
            if made.specification(self._device) != self._spec:
                raise ValueError("`inputs` gives another structure for another seed")
        elif kind == "derived":
            made = self._feeder.derive(request["seed"])
        elif kind == "base":
            made = self._feeder.draw(request["seed"], request["shape"])
            return {"more": self._feeder.add_base(made)}
        else:
            made = self._feeder.probe(kind, self._sets[request["base"]], request["seed"])
            if made is None:
                return {"skipped": "the structure of the inputs rules this probe out"}
        self._sets[request["id"]] = made
        self._exchange.synchronize()
        return {}

    def _op_draw_many(self, request: dict[str, Any]) -> dict[str, Any]:
        for i, seed in zip(request["ids"], request["seeds"], strict=True):
            self._op_draw({"id": i, "kind": request["kind"], "seed": seed, "shape": request["shape"]})
        return {}

    def _op_moved(self, request: dict[str, Any]) -> dict[str, Any]:
        """Which of the inputs that the first draws share a set has otherwise."""
        return {"inputs": self._feeder.moved(self._sets[request["set"]])}

    def _op_forget(self, request: dict[str, Any]) -> dict[str, Any]:
        for i in request["sets"]:
            self._sets.pop(i, None)
            self._earlier.pop(i, None)
        for key in [k for k in self._answers if k[0] not in self._sets]:
            del self._answers[key]
        self._exchange.forget(request["calls"])
        return {}

    # -- shared memory ---------------------------------------------------------------------------

    def _op_arena(self, request: dict[str, Any]) -> dict[str, Any]:
        shape = ArenaShape(**request["shape"])
        opened: dict[str, Any] = self._exchange.arena(request["arm"], shape, self._channel.fds)
        return opened

    def _op_drop_arenas(self, request: dict[str, Any]) -> dict[str, Any]:
        self._exchange.drop_arenas()
        return {}

    def _op_fill(self, request: dict[str, Any]) -> dict[str, Any]:
        given = [self._sets[i].tensors for i in request["sets"]]
        self._exchange.fill(request["arm"], request["slots"], given, self._spec["leaves"])
        return {}

    def _op_reserve(self, request: dict[str, Any]) -> dict[str, Any]:
        self._exchange.reserve(request["bytes"], request["count"])
        return {}

    def _op_take(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            "guards": self._exchange.take(
                request["arm"], request["slots"], request["calls"], request["bytes"]
            )
        }

    def _op_take_inputs(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._exchange.take_inputs(
            request["arm"], request["slot"], request["call"], request["leaves"], self._spec["leaves"]
        )
        return {"leaves": found}

    def _op_inputs_moved(self, request: dict[str, Any]) -> dict[str, Any]:
        """Which of the inputs that count as outputs the oracle changes on a set, however little."""
        answer, tensors = self._answer(request["set"], request["seed"]), self._sets[request["set"]].tensors
        return {
            "leaves": [
                i for i in self._oracle.changed_inputs if not sets.alike(answer[f"in:{i}"], tensors[i])
            ]
        }

    def _op_inputs_changed(self, request: dict[str, Any]) -> dict[str, Any]:
        changed = self._exchange.inputs_changed(
            request["arm"],
            request["slot"],
            self._sets[request["set"]].tensors,
            self._spec["leaves"],
            request.get("window"),
        )
        return {"changed": changed}

    def _op_same_bytes(self, request: dict[str, Any]) -> dict[str, Any]:
        first: dict[str, Any] = self._exchange.same_bytes(
            request["first"], request["second"], request["leaves"]
        )
        return first

    # -- the oracle ------------------------------------------------------------------------------

    def _op_prove_oracle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Find the widest arithmetic in which the oracle runs, and see that its bits are really there."""
        made = self._sets[request["set"]]
        notes = []
        floats = any(
            t.is_floating_point() or t.is_complex()
            for t in (*made.tensors, *state.walk(self._state).values())
        )
        narrow = any(
            t.dtype in (torch.float16, torch.bfloat16)
            for t in (*made.tensors, *state.walk(self._state).values())
        )
        for precision in (torch.float64, torch.float32) if narrow else (torch.float64,):
            self._oracle.use_precision(precision)
            self._answers.clear()
            try:
                answer = self._answer(request["set"], request["seed"])
                notes_here = self._missing_bits(made, answer, request["seed"], precision) if floats else None
            except Exception as error:
                if formats.is_out_of_memory(error) and not (narrow and precision == torch.float64):
                    raise
                notes.append(f"{tree.dtype_name(precision)}: {type(error).__name__}: {str(error)[:200]}")
                continue
            if self._oracle.drew:
                return {"kind": None, "precision": None, "notes": notes, "random": True}
            if notes_here is None:
                return {
                    "kind": self._oracle.kind,
                    "precision": tree.dtype_name(precision),
                    "notes": notes,
                    "paths": list(answer),
                }
            notes.append(f"{tree.dtype_name(precision)}: {notes_here}")
        self._oracle.use_precision(None)
        self._answers.clear()
        return {"kind": None, "precision": None, "notes": notes}

    def _missing_bits(
        self, made: sets.InputSet, answer: Answer, seed: int, precision: torch.dtype
    ) -> str | None:
        outputs = {
            p: v
            for p, v in answer.items()
            if isinstance(v, torch.Tensor) and (v.is_floating_point() or v.is_complex())
        }
        for path, value in outputs.items():
            if accuracy.as_real(value).dtype != precision:
                return f"output {path} came back as {tree.dtype_name(value.dtype)}"
        if precision != torch.float64 or not outputs:
            return None
        g = torch.Generator(self._device).manual_seed(seed)
        moved = self._oracle.answer_beside(made.rebuilt(), seed, (), lambda dtype: _BITS_JITTER, g)
        for path, value in outputs.items():
            here, there = (accuracy.as_real(v).double().flatten() for v in (value, moved[path]))
            # Where a tie decides how many elements come out, those before it still tell.
            shared = min(here.numel(), there.numel())
            here, there = here[:shared], there[:shared]
            difference = there - here
            moves = torch.isfinite(difference) & (difference != 0)
            if bool(moves.any()):
                # A change that survives as less than a float32 step was carried in float64.
                relative = (difference.abs() / here.abs().clamp_min(1e-300))[moves]
                if float(relative.min()) < 2.0**-24:
                    return None
                return f"output {path} moves only in float32 steps: somewhere the float64 bits are dropped"
        return None

    def _answer(self, set_id: int, seed: int) -> Answer:
        key = (set_id, seed)
        if key not in self._answers:
            self._answers[key] = self._run_oracle(set_id, self._sets[set_id].rebuilt(), seed)
        return self._answers[key]

    def _run_oracle(self, set_id: int, inputs: Any, seed: int) -> Answer:
        """The oracle on these inputs in that set's place, after the calls that go before it."""
        began = time.monotonic()
        answer: Answer = self._oracle.answer(inputs, seed, self._before(set_id))
        self._usual_seconds = max(self._usual_seconds, time.monotonic() - began)
        return answer

    def _before(self, set_id: int) -> list[Any]:
        return [one.rebuilt() for one in self._earlier.get(set_id, ())]

    def _op_follow(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sets whose calls follow each other on one state and one random stream."""
        made = [self._sets[i] for i in request["sets"]]
        self._earlier.update({i: made[:n] for n, i in enumerate(request["sets"])})
        return {}

    def _op_answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the oracle on a set; says whether everything is finite in the outputs' own types.

        And on the way: the root of what an operator squares in a wider type would not be in other code, nor
        need be what `run` itself makes of a product that was too large for its type. The latter is asked
        about probes only, which come with a limit.
        """
        usual, limit, own = self._usual_seconds, request["seconds"], request["dtypes"]
        self._oracle.squared = False
        with time_limit(allowed(limit, usual)) if limit else contextlib.nullcontext():
            answer = self._answer(request["set"], request["seed"])
            overflowed = bool(limit) and self._oracle.overflows(
                self._sets[request["set"]].rebuilt(), request["seed"], self._before(request["set"])
            )
        if limit:
            self._usual_seconds = usual
        finite = all(accuracy.is_finite(v, tree.DTYPES.get(own.get(p))) for p, v in answer.items())
        return {"finite": finite and not (self._oracle.squared or overflowed), "leaves": len(answer)}

    def _op_use_baseline_as_oracle(self, request: dict[str, Any]) -> dict[str, Any]:
        """For random operators: the baseline's own output under the same seed is what is expected."""
        self._oracle.use_precision(None)
        self._answers.clear()
        return {}

    def _op_adopt_answer(self, request: dict[str, Any]) -> dict[str, Any]:
        leaves = {f["path"]: self._exchange.leaf(request["call"], f) for f in request["leaves"]}
        self._answers[(request["set"], request["seed"])] = {
            path: (
                v.double().clone()
                if isinstance(v, torch.Tensor) and v.is_floating_point()
                else v.clone()
                if isinstance(v, torch.Tensor)
                else v
            )
            for path, v in leaves.items()
        }
        return {}

    def _op_check(self, request: dict[str, Any]) -> dict[str, Any]:
        """Errors of one call's outputs, leaf by leaf."""
        answer = self._answer(request["set"], request["seed"])
        results = []
        for fact in request["leaves"]:
            path = fact["path"]
            if path not in answer:
                results.append({"path": path, "missing": "oracle"})
                continue
            found = self._counted(request["call"], fact)
            results.append({"path": path, **matching.compare(found, answer[path], request["bulk"])})
        return {"leaves": results}

    def _op_misplaced(self, request: dict[str, Any]) -> dict[str, Any]:
        """How many NaN and infinities of one call are out of place where another call's are not."""
        oracle = self._answer(request["set"], request["seed"])[request["leaf"]["path"]]
        mine, theirs = (
            accuracy.misplaced_in(
                accuracy.as_real(self._exchange.leaf(call, leaf)).reshape(-1),
                accuracy.as_real(oracle).reshape(-1),
            )
            for call, leaf in (
                (request["call"], request["leaf"]),
                (request["other"], request["other_leaf"]),
            )
        )
        return {"count": int((mine & ~theirs).sum())}

    def _op_screen(self, request: dict[str, Any]) -> dict[str, Any]:
        """How far one call's outputs lie from another's on the same inputs, leaf by leaf; no oracle runs."""
        others = {fact["path"]: fact for fact in request["other_leaves"]}
        results = []
        for fact in request["leaves"]:
            found = self._counted(request["call"], fact)
            wanted = self._exchange.leaf(request["other"], others[fact["path"]])
            if matching.same_bits(found, wanted):
                results.append({"path": fact["path"], "same": True})
            else:
                results.append({"path": fact["path"], **matching.compare(found, wanted)})
        return {"leaves": results}

    def _op_check_integers(self, request: dict[str, Any]) -> dict[str, Any]:
        """Integers, booleans and plain numbers where they differ from the oracle and no tie excuses it."""
        made, seed = self._sets[request["set"]], request["seed"]
        answer, earlier = self._answer(request["set"], seed), self._before(request["set"])
        results = []
        for fact, base_fact in zip(request["leaves"], request["baseline_leaves"], strict=True):
            path = fact["path"]
            found, wanted = self._exchange.leaf(request["call"], fact), answer[path]
            base = self._exchange.leaf(request["baseline_call"], base_fact)
            tensors = all(
                isinstance(v, torch.Tensor) and v.shape == found.shape for v in (found, wanted, base)
            )
            wanted = wanted.to(found.dtype) if tensors else wanted
            beside = near_ties.beside(self._oracle, path, wanted, made, seed, earlier)
            if tensors:
                wrong = matching.unexcused(found, wanted, base, made.tensors, beside, self._tallies[path])
                if request["unscaled"] is not None:
                    # Scores that underflow tie in the oracle; what was in order before they did still is.
                    wrong &= found != self._answer(request["unscaled"], seed)[path]
                row = matching.first_of(wrong, found, wanted)
            else:
                row = matching.compare(found, wanted)
                if matching.number_excused(found, wanted, base, made.tensors, beside):
                    row["mismatches"] = 0
            if row["mismatches"] and request["sample"] is not None and self._ties_orders(request):
                row["mismatches"] = 0
            results.append({"path": path, **row, "late": beside.late()})
        return {"leaves": results}

    def _op_out_of_reach(self, request: dict[str, Any]) -> dict[str, Any]:
        """Which of a baseline call's integers are what no numbers beside the inputs give in a wide type."""
        made, seed = self._sets[request["set"]], request["seed"]
        answer, earlier = self._answer(request["set"], seed), self._before(request["set"])
        found = []
        for fact in request["leaves"]:
            path, base = fact["path"], self._exchange.leaf(request["call"], fact)
            wanted = answer[path]
            if isinstance(wanted, torch.Tensor) and isinstance(base, torch.Tensor):
                wanted = wanted.to(base.dtype)
            beside = near_ties.beside(self._oracle, path, wanted, made, seed, earlier)
            if matching.out_of_reach(base, wanted, beside):
                found.append(path)
        return {"paths": found}

    def _ties_orders(self, request: dict[str, Any]) -> bool:
        """Whether a probe makes scores equal that its sample does not: either order of them is right then."""
        probe, sample = (
            self._oracle.flattened(self._sets[one].rebuilt(), request["seed"], self._before(one))
            for one in (request["set"], request["sample"])
        )
        return bool(probe > sample)

    def _op_locate(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = self._answer(request["set"], request["seed"])
        fact = request["leaf"]
        found = self._exchange.leaf(request["call"], fact)
        wanted = answer[fact["path"]]
        if not isinstance(found, torch.Tensor):
            return {"index": [], "expected": str(wanted), "found": str(found)}
        return accuracy.locate(
            found, wanted.to(torch.complex128 if found.is_complex() else torch.float64), request["allowed"]
        )

    def _op_condition(self, request: dict[str, Any]) -> dict[str, Any]:
        """Errors that rounding causes, or `times` as much: no honest arithmetic can be asked to do better.

        In bins of the oracle's magnitude, like all errors: near a kink, or where terms cancel, what is
        computed may lie in another.
        """
        answers = self._rounded_answers(request)
        unmoved = next(answers)
        own = self._oracle.precision is None
        oracle = unmoved if own else self._answer(request["set"], request["seed"])
        return {
            "leaves": rounding.errors(answers, unmoved, oracle),
            "widened": self._oracle.widened,
            "inputs": accuracy.magnitude(self._sets[request["set"]].tensors),
        }

    def _rounded_answers(self, request: dict[str, Any]) -> Iterator[Answer]:
        set_id, seed = request["set"], request["seed"]
        made, earlier = self._sets[set_id], self._before(set_id)
        place = rounding.Place(made, seed, earlier, lambda: self._answer(set_id, seed))
        return rounding.answers(self._oracle, place, request)

    def _op_arithmetic(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the baseline computes in; one that cannot be watched may compute anything."""
        made, earlier = self._sets[request["set"]], self._before(request["set"])
        found = self._oracle.arithmetic(made.rebuilt(), request["seed"], earlier)
        return found._asdict() if found is not None else {"narrow": True, "derives": True}

    def _op_roundings(self, request: dict[str, Any]) -> dict[str, Any]:
        """How far float outputs move, rms, when every step of the oracle is rounded as float32 is.

        As coarsely as a sum of thousands of terms, which operators make inside: a convolution's bias has one
        for each pixel.
        """
        if self._oracle.precision != torch.float64:
            return {"rms": {}}
        made, earlier = self._sets[request["set"]], self._before(request["set"])
        answer = self._answer(request["set"], request["seed"])
        g = torch.Generator(self._device).manual_seed(request["seed"])
        times = _ROUNDED_INSIDE * HALF_ULP[torch.float32] / HALF_ULP[torch.float64]
        moved = self._oracle.answer_rerounded(made.rebuilt(), request["seed"], earlier, times, g)
        return {
            "rms": {
                path: float(accuracy.as_real(moved[path] - answer[path]).square().mean().sqrt())
                for path in request["paths"]
                if isinstance(moved.get(path), torch.Tensor) and moved[path].shape == answer[path].shape
            }
        }

    def _op_beyond(self, request: dict[str, Any]) -> dict[str, Any]:
        """How many elements of a leaf are beyond what their bins allow, and the errors of all others."""
        pair = self._beside_oracle(request)
        if pair is None:
            return {"count": None}
        found, oracle = (accuracy.as_real(one).reshape(-1) for one in pair)
        far = accuracy.beyond(*pair, request["allowed"])
        return {"count": int(far.sum()), "bins": accuracy.measure(found[~far], oracle[~far])["bins"]}

    def _op_jumps(self, request: dict[str, Any]) -> dict[str, Any]:
        """How many of the elements that are beyond what their bins allow rounding does not explain.

        Each by itself: it does where the baseline jumped to the same value on the same inputs, or where the
        answer jumps there, or moves half as far, when what is on the way is rounded otherwise.
        """
        path = request["leaf"]["path"]
        pair, other = (
            self._beside_oracle(request),
            self._exchange.leaf(request["other"], request["other_leaf"]),
        )
        if pair is None or not isinstance(other, torch.Tensor) or other.shape != pair[0].shape:
            return {"unexplained": None}
        return rounding.unexplained(path, *pair, other, request["allowed"], self._rounded_answers(request))

    def _beside_oracle(self, request: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
        """A call's leaf and the oracle's, if both are tensors of one shape."""
        found = self._exchange.leaf(request["call"], request["leaf"])
        oracle: Any = self._answer(request["set"], request["seed"]).get(request["leaf"]["path"])
        if not all(isinstance(one, torch.Tensor) and one.shape == found.shape for one in (found, oracle)):
            return None
        return found, oracle.to(torch.complex128 if found.is_complex() else torch.float64)

    def _op_sensitivity(self, request: dict[str, Any]) -> dict[str, Any]:
        """Errors that lazy answers would make here: zeros, one constant, another set's answer."""
        answer = self._answer(request["set"], request["seed"])
        stale = self._answer(request["stale"], request["seed"])
        results = []
        for path, v in answer.items():
            if not isinstance(v, torch.Tensor) or not v.is_floating_point() or not v.numel():
                continue
            lazy = {"zeros": torch.zeros_like(v)}
            if v.numel() > 1:
                lazy["constant"] = torch.full_like(v, float(v.nanmean()))
            if tuple(stale[path].shape) == tuple(v.shape):
                lazy["stale"] = stale[path]
            results.append(
                {"path": path, "lazy": {name: accuracy.measure(t, v)["bins"] for name, t in lazy.items()}}
            )
        return {"leaves": results}

    def _op_ignoring(self, request: dict[str, Any]) -> dict[str, Any]:
        """How far off code is on a probe that takes one of these inputs for what every draw has."""
        set_id, seed, shared = request["set"], request["seed"], self._feeder.shared
        made = self._sets[set_id]
        # What the baseline's own process gave is no measure: here the same code must run twice.
        own = self._oracle.precision is None
        answer = self._run_oracle(set_id, made.rebuilt(), seed) if own else self._answer(set_id, seed)
        drawn = {i: shared[i] for i in request["inputs"]}
        return {"found": untested.answers_ignoring(self._oracle, made, seed, answer, drawn)}

    def _op_untested(self, request: dict[str, Any]) -> dict[str, Any]:
        """Inputs that nothing moved, room for outputs aside, and state as its constructor left it."""
        made, seed = self._sets[request["set"]], request["seed"]
        still = [i for i in self._feeder.shared if i not in request["moved"]]
        return {
            "inputs": [i for i in still if not untested.overwritten(self._oracle, made, seed, i)],
            "state": untested.as_constructed(self._state, self._oracle.changed_state),
            "outputs": untested.never_raised(self._oracle, (made, self._feeder.first), seed),
        }

    def _op_necessity(self, request: dict[str, Any]) -> dict[str, Any]:
        """Input bytes shown to matter: each of a few secret elements, changed alone, moved the output."""
        made, seed = self._sets[request["set"]], request["seed"]
        answer = self._answer(request["set"], seed)
        g = torch.Generator().manual_seed(seed)
        needed = []
        for i, x in enumerate(made.tensors):
            if not x.is_floating_point() or x.numel() < 64:
                continue
            moved_all = True
            for _ in range(_NECESSITY_TRIES):
                at = int(torch.randint(0, x.numel(), (1,), generator=g))
                bent = x.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
                bent[at] = bent[at].double() * -3 + 1
                tensors = list(made.tensors)
                tensors[i] = bent.reshape(x.shape)
                moved = self._oracle.answer(made.rebuilt(tensors), seed)
                if not any(
                    isinstance(v, torch.Tensor) and not torch.equal(moved[p], v) for p, v in answer.items()
                ):
                    moved_all = False
                    break
            if moved_all:
                needed.append(i)
        return {
            "leaves": needed,
            "bytes": sum(made.tensors[i].numel() * made.tensors[i].element_size() for i in needed),
        }

    def _op_work(self, request: dict[str, Any]) -> dict[str, Any]:
        """The least FLOPs and bytes that the baseline's file says a call takes."""
        if self._workload.work is None:
            return {"flops": 0.0, "bytes": 0.0}
        declared = self._workload.work(*self._sets[request["set"]].rebuilt())
        if not isinstance(declared, dict) or not set(declared) <= {"flops", "bytes"}:
            raise TypeError(f'`work` returned {declared!r}; needed: {{"flops": number, "bytes": number}}')
        return {key: _amount(declared.get(key, 0.0)) for key in ("flops", "bytes")}

    def _op_free_memory(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"bytes": self._exchange.free_memory()}

    def _counted(self, call: int, fact: dict[str, Any]) -> Any:
        """A leaf that is about to be compared."""
        leaf = self._exchange.leaf(call, fact)
        self._tallies[fact["path"]].elements += leaf.numel() if isinstance(leaf, torch.Tensor) else 1
        return leaf


def _shown(shape: Any) -> Any:
    """A shape for people and records: as it is where JSON can hold it, else in Python's words."""
    try:
        json.dumps(shape)
    except (TypeError, ValueError, RecursionError):
        return repr(shape)
    return shape


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise TypeError(
            f'`work` declares {value!r}; needed: {{"flops": number, "bytes": number}}, finite, not negative'
        )
    return float(value)


def _user_line(error: BaseException) -> str:
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if "/trackside/" not in f.filename and "/torch/" not in f.filename
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""

"""What is expected of each call: the oracle's answers, how wide they are, and what rounding makes of them.

Runs in the reference process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from trackside.comparison import accuracy, rounding, sets
from trackside.comparison.oracle import Answer
from trackside.comparison.rerounding import HALF_ULP
from trackside.workload import formats, state, tree
from trackside.workload.time_limit import allowed, time_limit

__all__ = ["Expected"]

# Relative moves that show whether the oracle's path is float64 throughout: lost in float32, kept in float64.
_BITS_JITTER = 2.0**-40
# What adding 4096 terms one after the other makes of one rounding: the root of their number.
_ROUNDED_INSIDE = 64


class Expected:
    """The oracle on the sets of a task, each answer computed once; the judge asks by the names of `_op_`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._exchange: Any = None
        self._oracle: Any = None
        self._state: Any = None
        self._sets: dict[int, sets.InputSet] = {}
        self._earlier: dict[int, list[sets.InputSet]] = {}
        self._answers: dict[tuple[int, int], Answer] = {}
        self._usual_seconds = 0.0
        self._ranks_nan = False
        """Whether the baseline ranks NaN on its own inputs too."""

    def _op_contract(self, request: dict[str, Any]) -> dict[str, Any]:
        self._oracle.changed_inputs = request["inputs"]
        self._oracle.changed_state = request["state"]
        self._answers.clear()
        return {}

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
        self._oracle.ranked_nan = False
        answer: Answer = self._oracle.answer(inputs, seed, self._before(set_id))
        if not self._sets[set_id].bent:
            self._ranks_nan |= self._oracle.ranked_nan
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
        about probes only, which come with a limit. Nor is there an order of what a probe makes no number.
        """
        usual, limit, own = self._usual_seconds, request["seconds"], request["dtypes"]
        self._oracle.squared = self._oracle.ranked_nan = False
        with time_limit(allowed(limit, usual)) if limit else contextlib.nullcontext():
            answer = self._answer(request["set"], request["seed"])
            overflowed = bool(limit) and self._oracle.overflows(
                self._sets[request["set"]].rebuilt(), request["seed"], self._before(request["set"])
            )
        if limit:
            self._usual_seconds = usual
        finite = all(accuracy.is_finite(v, tree.DTYPES.get(own.get(p))) for p, v in answer.items())
        disordered = self._oracle.ranked_nan and not self._ranks_nan
        lost = self._oracle.squared or overflowed or disordered
        return {"finite": finite and not lost, "leaves": len(answer)}

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

    def _op_arithmetic(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the baseline computes in; one that cannot be watched may compute anything.

        Doubles that go in may go over to Python's numbers, which nobody sees.
        """
        made, earlier = self._sets[request["set"]], self._before(request["set"])
        found = self._oracle.arithmetic(made.rebuilt(), request["seed"], earlier)
        if found is None:
            return {"narrow": True, "derives": True, "doubles": True}
        held = (*made.tensors, *state.walk(self._state).values())
        doubles = found.doubles or any(t.dtype in (torch.float64, torch.complex128) for t in held)
        return {**found._asdict(), "doubles": doubles}

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

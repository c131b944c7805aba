"""How far each leaf of a call lies from what is expected, and which of its errors ties and jumps explain.

Runs in the reference process.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import torch

from trackside.comparison import accuracy, matching, near_ties, rounding, ties
from trackside.comparison.expected import Expected
from trackside.comparison.sets import alike

__all__ = ["LeafErrors"]


class LeafErrors(Expected):
    """Calls' outputs beside the oracle's, the baseline's and each other."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._tallies: dict[str, matching.Tally] = defaultdict(matching.Tally)

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

    def _op_small_parts(self, request: dict[str, Any]) -> dict[str, Any]:
        """Which outputs have a part of their own below the magnitude that is given for each."""
        answer = self._answer(request["set"], request["seed"])
        return {
            "paths": [
                path
                for path, below in request["below"].items()
                if isinstance(answer.get(path), torch.Tensor)
                and accuracy.has_small_part(answer[path].detach(), below)
            ]
        }

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

    def _op_untied(self, request: dict[str, Any]) -> dict[str, Any]:
        """Errors of a leaf on a probe that makes scores equal, without elements that hang on their order.

        Those that another order of equals moves beyond what their bins allow. None where there are none.
        """
        found = _as_tensor(self._exchange.leaf(request["call"], request["leaf"]))
        wanted = _as_tensor(self._answer(request["set"], request["seed"])[request["leaf"]["path"]])
        if found.shape != wanted.shape or not self._ties_orders(request):
            return {"bins": None}
        wide = torch.complex128 if found.is_complex() else torch.float64
        oracle = accuracy.as_real(wanted.to(wide)).reshape(-1)
        far = accuracy.beyond(found, wanted.to(wide), request["allowed"])
        hang = self._moved_by_order(request, oracle, far, accuracy.Limits(request["allowed"], found))
        mine = accuracy.as_real(found).reshape(-1)
        return {"bins": accuracy.measure(mine[~hang], oracle[~hang])["bins"] if bool(hang.any()) else None}

    def _moved_by_order(
        self, request: dict[str, Any], oracle: torch.Tensor, far: torch.Tensor, limits: accuracy.Limits
    ) -> torch.Tensor:
        """Which elements another order of equals moves; no more are tried than explain the `far` ones."""
        made, path, hang = self._sets[request["set"]], request["leaf"]["path"], torch.zeros_like(far)
        until = time.monotonic() + request["seconds"]
        for order in ties.orders(torch.Generator(self._device).manual_seed(request["seed"])):
            other = self._oracle.answer_ordered(
                made.rebuilt(), request["seed"], self._before(request["set"]), order
            )[path]
            other = accuracy.as_real(_as_tensor(other)).reshape(-1)
            hang |= ~limits.near(other, oracle) if other.shape == oracle.shape else True
            if not bool((far & ~hang).any()) or time.monotonic() > until:
                break
        return hang

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
        made, earlier = self._sets[request["set"]], self._before(request["set"])
        place = rounding.Place(
            made, request["seed"], earlier, lambda: self._answer(request["set"], request["seed"])
        )
        return rounding.unexplained(
            path,
            *pair,
            other,
            request["allowed"],
            self._rounded_answers(request),
            rounding.beside(self._oracle, place, request["seconds"]),
        )

    def _beside_oracle(self, request: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
        """A call's leaf and the oracle's, if both are tensors of one shape."""
        found = self._exchange.leaf(request["call"], request["leaf"])
        oracle: Any = self._answer(request["set"], request["seed"]).get(request["leaf"]["path"])
        if not all(isinstance(one, torch.Tensor) and one.shape == found.shape for one in (found, oracle)):
            return None
        return found, oracle.to(torch.complex128 if found.is_complex() else torch.float64)

    def _op_sensitivity(self, request: dict[str, Any]) -> dict[str, Any]:
        """Errors that lazy answers would make here: zeros, one constant, another set's answer.

        Of masks, and of several integers, only whether another set's are the same.
        """
        answer = self._answer(request["set"], request["seed"])
        stale = self._answer(request["stale"], request["seed"])
        results: list[dict[str, Any]] = []
        for path, v in answer.items():
            if not isinstance(v, torch.Tensor) or not v.numel():
                continue
            if not v.is_floating_point():
                if v.dtype == torch.bool or v.numel() > 1:
                    results.append({"path": path, "lazy": {}, "same": alike(v, stale[path])})
                continue
            lazy = {"zeros": torch.zeros_like(v)}
            if v.numel() > 1:
                # Of numbers: with one infinity among them the mean would be no constant at all.
                numbers = v[torch.isfinite(v)]
                lazy["constant"] = torch.full_like(v, float(numbers.mean()) if numbers.numel() else 0.0)
            if tuple(stale[path].shape) == tuple(v.shape):
                lazy["stale"] = stale[path]
            results.append({"path": path, "lazy": {name: accuracy.measure(t, v) for name, t in lazy.items()}})
        return {"leaves": results}

    def _counted(self, call: int, fact: dict[str, Any]) -> Any:
        """A leaf that is about to be compared."""
        leaf = self._exchange.leaf(call, fact)
        self._tallies[fact["path"]].elements += leaf.numel() if isinstance(leaf, torch.Tensor) else 1
        return leaf


def _as_tensor(value: Any) -> torch.Tensor:
    """A plain number as the double that it is."""
    return value if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=torch.float64)

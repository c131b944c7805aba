"""The trusted process: it feeds inputs, takes private copies of outputs, runs the oracle and measures errors.

It runs the baseline's `inputs`, `setup` and `reference`; the candidate's file never enters it. It
measures and reports; the judge decides.
"""

from __future__ import annotations

import functools
import json
import math
import traceback
from pathlib import Path
from typing import Any

import torch

from trackside.comparison import sets, untested
from trackside.comparison.bent_state import BentState
from trackside.comparison.exchange import Exchange, find_device
from trackside.comparison.leaf_errors import LeafErrors
from trackside.comparison.oracle import Oracle
from trackside.records.errors import TracksideError
from trackside.workload import formats, state
from trackside.workload.bending import can_bend
from trackside.workload.channel import Channel
from trackside.workload.memory import ArenaShape
from trackside.workload.sandbox import Isolation

__all__ = ["serve"]

# Single-element changes that must all reach the output before an input's bytes count as necessary.
_NECESSITY_TRIES = 6


def serve(channel: Channel, request: dict[str, Any], isolation: Isolation) -> None:
    """Answer the judge until it says exit."""
    _Reference(channel, request["device"]).loop()


class _Reference(LeafErrors):
    def __init__(self, channel: Channel, device: str) -> None:
        super().__init__(device)
        self._channel = channel
        self._workload: Any = None
        self._feeder: Any = None
        self._spec: dict[str, Any] = {}
        self._setup_seed = 0
        self._bent: BentState | None = None

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

    # -- the baseline's file ---------------------------------------------------------------------------

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
        self._setup_seed = request["seed"]
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

    # -- sets ------------------------------------------------------------------------------------------

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

    def _op_bent(self, request: dict[str, Any]) -> dict[str, Any]:
        """Which inputs a probe changed."""
        return {"inputs": self._sets[request["set"]].bent}

    def _op_forget(self, request: dict[str, Any]) -> dict[str, Any]:
        for i in request["sets"]:
            self._sets.pop(i, None)
            self._earlier.pop(i, None)
        for key in [k for k in self._answers if k[0] not in self._sets]:
            del self._answers[key]
        self._exchange.forget(request["calls"])
        return {}

    # -- shared memory ---------------------------------------------------------------------------------

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

    # -- what a task tests -----------------------------------------------------------------------------

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
        """Inputs that nothing moved, room for outputs aside, and outputs that would tell of NaN."""
        made, seed = self._sets[request["set"]], request["seed"]
        still = [i for i in self._feeder.shared if i not in request["moved"]]
        return {
            "inputs": [i for i in still if not untested.overwritten(self._oracle, made, seed, i)],
            "outputs": untested.never_raised(self._oracle, (made, self._feeder.first), seed),
            "unbent": self._feeder.unbent(request["bent"]),
        }

    def _op_suspects(self, request: dict[str, Any]) -> dict[str, Any]:
        """State that is special as `setup` left it, as what; other parameters; how large all of it is."""
        native = self._workload.format == "native" and self._workload.has_state
        other = functools.cache(lambda: self._workload.setup(self._setup_seed + 1, self._device))
        changed = self._oracle.changed_state
        kinds = untested.as_constructed(self._state, changed, other if native else None)
        tensors = state.walk(self._state)
        return {
            "kinds": kinds,
            "bendable": {path: kind for path, kind in kinds.items() if can_bend(tensors[path])},
            "ordinary": [
                path
                for path in (untested.ordinary(self._state, changed, other) if native else ())
                if path not in kinds
            ],
            "bytes": sum(t.numel() * t.element_size() for t in tensors.values()),
        }

    def _op_bend(self, request: dict[str, Any]) -> dict[str, Any]:
        """Give some of the state other values until `unbend`."""
        self._op_unbend({})
        self._bent = BentState(
            self._oracle, self._state, request["kinds"], request["seed"], request["signed"]
        )
        return {}

    def _op_unbend(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._bent is not None:
            self._bent.restore()
        self._bent = None
        self._answers.clear()
        return {}

    def _op_straight(self, request: dict[str, Any]) -> dict[str, Any]:
        """How far off code is with a bent state that takes some of it for what `setup` had made."""
        assert self._bent is not None
        set_id, seed = request["set"], request["seed"]
        made = self._sets[set_id]
        # As in `ignoring`.
        own = self._oracle.precision is None
        answer = self._run_oracle(set_id, made.rebuilt(), seed) if own else self._answer(set_id, seed)
        return {"found": self._bent.ignoring(made, seed, answer, request["seconds"])}

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

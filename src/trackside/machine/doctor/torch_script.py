"""What a script does with PyTorch, as far as its syntax tells: devices, training steps, loaders, models."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias

from trackside.machine.doctor.probe import Outcome, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.script import Argument, Call, Function, Loop, Script
from trackside.machine.doctor.system import System

__all__ = ["WAITS", "Loader", "TorchScript", "Where", "concerned", "script_probe", "torch_script", "weigh"]

Where: TypeAlias = Literal["gpu", "perhaps", "anywhere"]
"""Whether a probe speaks of GPU scripts only, also of a file that does not say where it runs, or of all."""

# Packages whose presence makes a file one of deep learning with PyTorch.
_TORCH = frozenset(
    [
        "torch",
        "torchvision",
        "torchaudio",
        "lightning",
        "pytorch_lightning",
        "accelerate",
        "transformers",
        "diffusers",
        "trl",
        "peft",
        "vllm",
        "deepspeed",
        "sentence_transformers",
        "timm",
        "torch_geometric",
        "monai",
    ]
)
# These choose the GPU by themselves.
_CHOOSE_GPU = frozenset({"accelerate", "lightning", "pytorch_lightning", "deepspeed", "vllm"})
_CHOOSE_GPU_CLASSES = frozenset({"transformers.Trainer", "transformers.TrainingArguments", "trl.SFTTrainer"})
# Asking is no use.
_QUESTIONS = frozenset({"torch.cuda.is_available", "torch.cuda.device_count"})
_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader", "monai.data.DataLoader")
_WRAPPED = frozenset({"enumerate", "zip", "iter", "tqdm", "trange", "track", "islice", "tqdm_notebook"})
_MODULES = ("torch.nn.Module", "torch.nn.modules.Module", "lightning.LightningModule")
_MODEL_METHODS = frozenset({"eval", "train", "parameters", "load_state_dict", "state_dict"})
_DTYPES = frozenset(
    [
        "float16",
        "bfloat16",
        "half",
        "float32",
        "float",
        "float64",
        "double",
        "int8",
        "int16",
        "int32",
        "int64",
        "long",
        "bool",
        "uint8",
    ]
)
# Methods that end only when the GPU has done what was asked before.
WAITS = frozenset({"item", "tolist", "cpu", "numpy", "synchronize", "barrier", "generate"})


@dataclass(frozen=True)
class Loader:
    """A DataLoader, and what it is called."""

    call: Call
    names: tuple[str, ...]


@dataclass(frozen=True)
class TorchScript:
    """Questions about one script; where the syntax gives no answer, what is asked for is not among it."""

    script: Script

    # -- where and what ------------------------------------------------------------------------------

    @cached_property
    def gpu(self) -> bool | None:
        """Whether it uses a GPU; None where that is decided outside."""
        script = self.script
        if script.packages & _CHOOSE_GPU or {c.name for c in script.calls} & _CHOOSE_GPU_CLASSES:
            return True
        for node in script.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if node.value in ("cuda", "nccl") or node.value.startswith("cuda:"):
                    return True
            elif isinstance(node, ast.keyword) and node.arg == "device_map":
                return True
            elif isinstance(node, ast.Attribute):
                name = script.name_of(node) or ""
                if node.attr == "cuda" and isinstance(script.parents.get(node), ast.Call):
                    return True
                if name.startswith("torch.cuda.") and name not in _QUESTIONS:
                    return True
        if any(self._goes_somewhere(call) for call in script.calls):
            return None
        return None if self.defines_only and not self.trains and not self.loaders else False

    @cached_property
    def defines_only(self) -> bool:
        """Whether it runs nothing when it is run: what uses it decides where, and with which settings."""
        definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        quiet = (*definitions, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
        body = self.script.tree.body
        return any(isinstance(n, definitions) for n in body) and all(
            isinstance(n, quiet) or (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
            for n in body
        )

    def _goes_somewhere(self, call: Call) -> bool:
        device = call.expression("device", 0 if call.method == "to" else None)
        if isinstance(device, Argument) or self.is_dtype(device):
            return False
        return self.script.read(device) is Argument.UNREADABLE and not self.is_cpu(device)

    def is_cpu(self, node: ast.AST) -> bool:
        node = self.script.only_value(node)
        if isinstance(node, ast.Call) and self.script.name_of(node.func) == "torch.device" and node.args:
            node = node.args[0]
        return isinstance(node, ast.Constant) and str(node.value).startswith("cpu")

    def is_dtype(self, node: ast.AST) -> bool:
        name = self.script.name_of(node) or ""
        return (name.startswith("torch.") and name[6:] in _DTYPES) or name.endswith(".dtype")

    def to_device(self, call: Call) -> bool:
        """Whether a call is `.cuda()`, or `.to()` with a device that is not the CPU."""
        if call.method == "cuda":
            return True
        if call.method != "to":
            return False
        device = call.expression("device", 0)
        return not isinstance(device, Argument) and not self.is_dtype(device) and not self.is_cpu(device)

    @cached_property
    def trains(self) -> bool:
        return any(c.method == "backward" for c in self.script.calls)

    @cached_property
    def optimizers(self) -> list[Call]:
        return [c for c in self.script.calls if c.name.startswith("torch.optim.") and c.name.count(".") == 2]

    # -- steps ---------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> frozenset[ast.AST]:
        """Loops and functions whose body runs once in a training step, or more often."""
        found: set[ast.AST] = set()
        for call in self.script.calls:
            if call.method == "backward" or self.is_optimizer_step(call):
                loops = self.script.loops_around(call.node)
                function = self.script.function_around(call.node)
                if loops:
                    found.add(loops[0])
                elif function is not None and self._is_called_in_a_loop(function):
                    found.add(function)
        return frozenset(found)

    @cached_property
    def _optimizer_names(self) -> frozenset[str]:
        return frozenset(n for o in self.optimizers for n in self.script.names_of_result(o.node))

    def is_optimizer_step(self, call: Call) -> bool:
        if call.method != "step":
            return False
        return (
            call.receiver in self._optimizer_names
            or "optim" in call.receiver.lower()
            or call.receiver in ("opt", "scaler")
        )

    def _is_called_in_a_loop(self, function: Function) -> bool:
        return any(c.loops and c.name in (function.name, f"self.{function.name}") for c in self.script.calls)

    def step_around(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop or function of a training step that holds it."""
        around: list[ast.AST] = list(self.script.loops_around(node))
        function = self.script.function_around(node)
        return next((a for a in [*around, function] if a in self.steps), None)

    def in_every_step(self, node: ast.AST) -> bool:
        """Whether it runs in each training step, without a condition that could make it rare."""
        step = self.step_around(node)
        return step is not None and not self.script.is_conditional(node, step)

    @cached_property
    def accumulating(self) -> list[Call]:
        """Optimizer steps under `if … % n …` in their loop: gradients of several batches come together."""
        return [c for c in self.script.calls if self.is_optimizer_step(c) and self._is_every_nth(c)]

    def _is_every_nth(self, call: Call) -> bool:
        step = self.step_around(call.node)
        for parent, part in self.script.above(call.node):
            if parent is step:
                return False
            if isinstance(parent, ast.If) and part in parent.body:
                return any(isinstance(n, ast.Mod) for n in ast.walk(parent.test))
        return False

    @cached_property
    def losses(self) -> frozenset[str]:
        """Variables on which backward is called, or that are handed to it."""
        found: set[str] = set()
        for call in self.script.calls:
            if call.method == "backward":
                found.add(call.receiver)
                scaled = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
                inside = [*call.node.args, *(scaled.args if isinstance(scaled, ast.Call) else [])]
                found.update(node.id for node in inside if isinstance(node, ast.Name))
        return frozenset(name for name in found if name.isidentifier())

    # -- data ----------------------------------------------------------------------------------------

    @cached_property
    def loaders(self) -> list[Loader]:
        return [
            Loader(call, tuple(self.script.names_of_result(call.node)))
            for call in self.script.exactly(*_LOADERS)
        ]

    def uses(self, loader: Loader) -> list[ast.AST]:
        """Where a loader is iterated or handed on; asking for its length or its dataset is no use."""
        found: list[ast.AST] = []
        for node in self.script.nodes:
            if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            if self.script.name_of(node) not in loader.names:
                continue
            parent = self.script.parents.get(node)
            asked = isinstance(parent, ast.Call) and self.script.name_of(parent.func) == "len"
            if not asked and not isinstance(parent, ast.Attribute):
                found.append(node)
        return found

    def iterated(self, loop: Loop) -> str | None:
        """The name of what a loop runs over, through `enumerate`, `tqdm` and the like."""
        if isinstance(loop, ast.While):
            return None
        node: ast.AST = loop.iter
        while isinstance(node, ast.Call):
            name = self.script.name_of(node.func) or ""
            if name.rpartition(".")[2] not in _WRAPPED or not node.args:
                return None
            node = node.args[0]
        return self.script.name_of(node)

    @cached_property
    def batch_loops(self) -> list[Loop]:
        """Loops over a DataLoader: of this file, or a parameter that is called so."""
        names = {name for loader in self.loaders for name in loader.names}
        loops = [n for n in self.script.nodes if isinstance(n, ast.For | ast.AsyncFor)]
        return [
            loop
            for loop in loops
            if (name := self.iterated(loop)) and (name in names or "loader" in name.lower())
        ]

    # -- models --------------------------------------------------------------------------------------

    @cached_property
    def modules(self) -> list[ast.ClassDef]:
        """Classes of this file that are modules, directly or through another class of the file."""
        classes = [node for node in self.script.nodes if isinstance(node, ast.ClassDef)]
        known: set[str] = set()
        for _ in classes:
            known |= {
                c.name
                for c in classes
                for base in c.bases
                if (name := self.script.name_of(base)) in known
                or name in _MODULES
                or str(name).endswith(".LightningModule")
            }
        return [c for c in classes if c.name in known]

    @cached_property
    def forwards(self) -> list[Function]:
        return [
            node
            for module in self.modules
            for node in module.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "forward"
        ]

    @cached_property
    def models(self) -> frozenset[str]:
        """Variables that are used as models are."""
        return frozenset(
            c.receiver
            for c in self.script.calls
            if c.method in _MODEL_METHODS and c.receiver.replace("self.", "").isidentifier()
        )

    def without_grad(self, node: ast.AST, depth: int = 3) -> bool:
        """Whether it runs under no_grad or inference_mode, also by all its callers in the file."""
        script = self.script
        # Also what says so by its name: `@smart_inference_mode()`.
        if any(word in name for name in script.contexts(node) for word in ("no_grad", "inference_mode")):
            return True
        function = script.function_around(node)
        if function is None or depth == 0:
            return False
        callers = [c for c in script.calls if c.name in (function.name, f"self.{function.name}")]
        return bool(callers) and all(self.without_grad(c.node, depth - 1) for c in callers)

    @cached_property
    def waiting(self) -> frozenset[str]:
        """Functions of this file in which something waits for the GPU."""
        around = (self.script.function_around(c.node) for c in self.script.calls if c.method in WAITS)
        return frozenset(function.name for function in around if function is not None)

    # -- compilation and precision -------------------------------------------------------------------

    @cached_property
    def compiles(self) -> bool:
        decorated = (
            self.script.name_of(d) == "torch.compile"
            for n in self.script.nodes
            if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            for d in n.decorator_list
        )
        calls = self.script.calls
        return any(decorated) or any(
            c.name == "torch.compile" or (c.method == "compile" and c.receiver in self.models) for c in calls
        )

    @cached_property
    def compiled(self) -> list[Function]:
        """Functions of this file that torch.compile traces for certain: decorated, named, or a forward."""
        script = self.script
        functions = [n for n in script.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        names: set[str] = set()
        for call in script.calls:
            if call.name == "torch.compile" and call.node.args:
                names |= self._classes_behind(call.node.args[0])
            elif call.method == "compile" and call.receiver in self.models:
                names |= self._classes_behind(call.node.func.value)  # type: ignore[attr-defined]
        found = []
        for function in functions:
            decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
            if any(script.name_of(d) == "torch.compile" for d in decorators) or (
                function.name in names and script.class_around(function) is None
            ):
                found.append(function)
            elif function in self.forwards:
                owner = script.class_around(function)
                if owner is not None and owner.name in names:
                    found.append(function)
        return found

    def _classes_behind(self, node: ast.AST) -> set[str]:
        """Names of functions and classes that an expression or a variable may stand for."""
        found: set[str] = set()
        waiting: list[ast.AST] = [node]
        seen: set[str] = set()
        while waiting:
            node = waiting.pop()
            while isinstance(node, ast.Call):
                node = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            name = node.id if isinstance(node, ast.Name) else self.script.name_of(node)
            if name and name not in seen:
                seen.add(name)
                found.add(name)
                waiting += [value for value in self.script.bound.get(name, []) if value is not None]
        return found

    @cached_property
    def mentions(self) -> frozenset[str]:
        """Every word of the source that names something: variables, attributes, keywords, short strings."""
        found: set[str] = set()
        for node in self.script.nodes:
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.alias):
                found |= {node.name.rpartition(".")[2], node.asname or node.name}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 40:
                found.add(node.value)
        return frozenset(found)

    @property
    def sixteen_bit(self) -> bool:
        """Whether anything in it speaks of 16-bit arithmetic."""
        words = {"autocast", "bfloat16", "float16", "half", "bf16", "fp16", "mixed_precision", "GradScaler"}
        return bool(self.mentions & words) or any("bf16" in w or "16-mixed" in w for w in self.mentions)


@lru_cache(maxsize=4)
def torch_script(script: Script) -> TorchScript:
    return TorchScript(script)


Verdict: TypeAlias = str | Argument | None
"""Of one place: what is bad, `UNREADABLE`, or nothing."""


def weigh(
    calls: Iterable[Call],
    look: Callable[[Call], Verdict],
    good: str,
    wanted: str,
    fix: Iterable[str] = (),
    bad: Callable[..., Outcome] = warns,
    unclear: str = "gets this from elsewhere",
) -> Outcome:
    """One answer for all places: bad where one is, unknown where one cannot be read, otherwise good."""
    verdicts = [(call, look(call)) for call in calls]
    wrong = [(call, verdict) for call, verdict in verdicts if isinstance(verdict, str)]
    if wrong:
        texts = list(dict.fromkeys(verdict for _, verdict in wrong))
        more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
        times = f" ({len(wrong)} times)" if len(wrong) > len(texts) else ""
        return bad(
            ", ".join(texts[:3]) + more + times, wanted, fix, list(dict.fromkeys(c.place for c, _ in wrong))
        )
    hidden = [call for call, verdict in verdicts if verdict is Argument.UNREADABLE]
    if hidden:
        return unknown(f"{hidden[0].place}: {hidden[0].method} {unclear}")
    return passes(good, wanted)


def concerned(system: System, where: Where) -> TorchScript | Outcome:
    """The script, where a probe has something to say about it; otherwise why it has not."""
    if system.script is None:
        return not_applicable("no script was given")
    if not system.script.packages & _TORCH:
        return not_applicable("the script does not use PyTorch")
    torch = torch_script(system.script)
    if where != "anywhere" and torch.gpu is False:
        return not_applicable("the script does not use a GPU")
    if where == "gpu" and torch.gpu is None:
        return unknown("whether it runs on a GPU is decided outside the script")
    return torch


def script_probe(
    item: str, where: Where = "gpu"
) -> Callable[[Callable[[TorchScript], Outcome]], Callable[[TorchScript], Outcome]]:
    """Makes a function the script probe of an item, asked only where the script is of that kind."""

    def register(look: Callable[[TorchScript], Outcome]) -> Callable[[TorchScript], Outcome]:
        def ask(system: System) -> Outcome:
            torch = concerned(system, where)
            return look(torch) if isinstance(torch, TorchScript) else torch

        probe(item, about="script")(ask)
        return look

    return register

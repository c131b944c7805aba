"""Probes of environment variables that a script sets for itself."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from trackside.machine.doctor.probe import Outcome, fails, passes, warns
from trackside.machine.doctor.script import Argument
from trackside.machine.doctor.torch_script import TorchScript, script_probe

_FALSE = ("", "0", "false", "False", "off")
# Each keeps NCCL from a path that it would take.
_DISABLING = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE")
_FORCING = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_BUFFSIZE",
    "NCCL_NTHREADS",
    "NCCL_P2P_LEVEL",
    "NCCL_NET_GDR_LEVEL",
)
# Each makes every collective wait, or look at its data.
_CHECKS = (
    "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_NAN_CHECK",
    "TORCH_NCCL_ENABLE_TIMING",
    "NCCL_CHECK_POINTERS",
    "NCCL_CHECK_MODE",
)


@dataclass(frozen=True)
class _Setting:
    variable: str
    value: object
    conditional: bool
    place: str


@lru_cache(maxsize=4)
def settings(torch: TorchScript) -> tuple[_Setting, ...]:
    """`os.environ["X"] = "1"`, `os.environ.setdefault("X", "1")`, `os.putenv`, `os.environ.update({...})`."""
    script = torch.script
    found = []
    for node in script.nodes:
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and script.name_of(target.value) == "os.environ":
                    pairs.append((target.slice, node.value))
        elif isinstance(node, ast.Call):
            name = script.name_of(node.func)
            if name in ("os.environ.setdefault", "os.putenv") and len(node.args) == 2:
                pairs.append((node.args[0], node.args[1]))
            elif name == "os.environ.update":
                pairs += [(ast.Constant(k.arg), k.value) for k in node.keywords if k.arg]
                for given in node.args:
                    if isinstance(given, ast.Dict):
                        pairs += list(zip(given.keys, given.values, strict=True))
        for key, value in pairs:
            variable = script.read(key) if key is not None else None
            if isinstance(variable, str):
                found.append(
                    _Setting(variable, script.read(value), script.is_conditional(node), script.place(node))
                )
    return tuple(found)


def _judge(
    torch: TorchScript,
    is_bad: Callable[[_Setting], bool],
    wanted: str,
    bad: Callable[..., Outcome] = warns,
) -> Outcome:
    wrong = [one for one in settings(torch) if not one.conditional and is_bad(one)]
    if wrong:
        found = ", ".join(f"{one.variable}={one.value}" for one in wrong)
        fix = [f"remove os.environ[{one.variable!r}]" for one in wrong]
        return bad(found, wanted, fix, [one.place for one in wrong])
    return passes("the script does not set it", wanted)


def _on(one: _Setting) -> bool:
    return one.value is not Argument.UNREADABLE and str(one.value) not in _FALSE


@script_probe("pytorch.launch-blocking")
def launch_blocking(torch: TorchScript) -> Outcome:
    return _judge(
        torch,
        lambda s: s.variable == "CUDA_LAUNCH_BLOCKING" and _on(s),
        "not set outside of debugging",
        fails,
    )


@script_probe("memory.caching-disabled")
def caching_disabled(torch: TorchScript) -> Outcome:
    # 0 is left out: whether it counts as set is not the same in all versions.
    return _judge(
        torch, lambda s: s.variable == "PYTORCH_NO_CUDA_MEMORY_CACHING" and _on(s), "not set", fails
    )


@script_probe("pytorch.torch-logs", "anywhere")
def torch_logs(torch: TorchScript) -> Outcome:
    names = ("TORCH_LOGS", "TORCH_COMPILE_DEBUG", "TORCHDYNAMO_VERBOSE")
    wanted = "compiler logs only while a question is open"
    calls = [
        c for c in torch.script.exactly("torch._logging.set_logs") if not torch.script.is_conditional(c.node)
    ]
    if calls:
        return warns(
            "torch._logging.set_logs is called",
            wanted,
            ["remove torch._logging.set_logs(...)"],
            [c.place for c in calls],
        )
    return _judge(torch, lambda s: s.variable in names and _on(s), wanted)


@script_probe("pytorch.max-connections")
def max_connections(torch: TorchScript) -> Outcome:
    megatron = bool(torch.script.packages & {"megatron", "transformer_engine", "nemo"})

    def is_bad(one: _Setting) -> bool:
        return one.variable == "CUDA_DEVICE_MAX_CONNECTIONS" and str(one.value) == "1" and not megatron

    return _judge(torch, is_bad, "1 only with Megatron's tensor parallelism; 8 is the default")


@script_probe("network.forced-variables")
def forced_variables(torch: TorchScript) -> Outcome:
    def is_bad(one: _Setting) -> bool:
        return (one.variable in _DISABLING and _on(one)) or one.variable in _FORCING

    return _judge(torch, is_bad, "NCCL chooses algorithm, protocol and path by itself")


@script_probe("network.debug-checks")
def debug_checks(torch: TorchScript) -> Outcome:
    def is_bad(one: _Setting) -> bool:
        worst = {"NCCL_DEBUG": "TRACE", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}.get(one.variable)
        return str(one.value).upper() == worst or (one.variable in _CHECKS and _on(one))

    return _judge(torch, is_bad, "no debug output and no checks of collectives in production")

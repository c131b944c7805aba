"""Probes of a script's data parallelism: DDP, FSDP, their samplers and checkpoints."""

from __future__ import annotations

import ast

from trackside.machine.doctor.probe import Outcome, not_applicable, passes, unknown, warns
from trackside.machine.doctor.script import Argument, Call
from trackside.machine.doctor.torch_script import TorchScript, Verdict, script_probe, weigh

_DDP = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")
_FSDP1 = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
)
_FSDP2 = ("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard")
_SAMPLER = ("torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler")
_NO_DDP = "the script does not wrap a model in DistributedDataParallel"
_NO_FSDP = "the script does not shard a model with FSDP"
# MiB: DDP's own bucket_cap_mb; what is smaller makes more and shorter all-reduces.
_DEFAULT_BUCKET = 25


@script_probe("distributed.ddp-no-sync")
def ddp_no_sync(torch: TorchScript) -> Outcome:
    script = torch.script
    if not script.exactly(*_DDP):
        return not_applicable(_NO_DDP)
    if not torch.accumulating:
        return not_applicable("the script does not accumulate gradients")
    wanted = "no_sync() around forward and backward of all micro-batches but the last"
    if {"no_sync", "require_backward_grad_sync"} & torch.mentions:
        return passes("the all-reduce is skipped in between", wanted)
    places = [c.place for c in script.calls if c.method == "backward" and torch.step_around(c.node)]
    return warns("gradients are reduced after every micro-batch", wanted, places=places)


@script_probe("distributed.ddp-unused-parameters")
def ddp_unused_parameters(torch: TorchScript) -> Outcome:
    script = torch.script
    wraps = script.exactly(*_DDP)
    trainers = [
        c for c in script.named("TrainingArguments", "DDPStrategy", "Trainer") if _asks_for_search(torch, c)
    ]
    if not wraps and not trainers:
        return not_applicable(_NO_DDP)

    def look(call: Call) -> Verdict:
        if call in trainers:
            return "unused parameters are searched in every step"
        search = script.read(call.expression("find_unused_parameters"))
        if search is True:
            static = script.read(call.expression("static_graph"))
            return None if static is True else "find_unused_parameters=True walks the graph in every step"
        return Argument.UNREADABLE if search is Argument.UNREADABLE else None

    return weigh(
        [*wraps, *trainers],
        look,
        "unused parameters are not searched",
        "find_unused_parameters=False, or static_graph=True where the graph does not change",
    )


def _asks_for_search(torch: TorchScript, call: Call) -> bool:
    names = ("ddp_find_unused_parameters", "find_unused_parameters")
    return (
        any(call.value(n) is True for n in names)
        or call.value("strategy") == "ddp_find_unused_parameters_true"
    )


@script_probe("distributed.ddp-gradient-views")
def ddp_gradient_views(torch: TorchScript) -> Outcome:
    script = torch.script
    wraps = script.exactly(*_DDP)
    if not wraps:
        return not_applicable(_NO_DDP)

    def look(call: Call) -> Verdict:
        views = script.read(call.expression("gradient_as_bucket_view"))
        if views is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return None if views is True else "every gradient is held twice (gradient_as_bucket_view is not set)"

    return weigh(wraps, look, "gradients are views of the buckets", "gradient_as_bucket_view=True")


@script_probe("distributed.ddp-bucket-size")
def ddp_bucket_size(torch: TorchScript) -> Outcome:
    script = torch.script
    wraps = script.exactly(*_DDP)
    if not wraps:
        return not_applicable(_NO_DDP)

    def look(call: Call) -> Verdict:
        size = script.read(call.expression("bucket_cap_mb"))
        if size is Argument.UNREADABLE:
            return Argument.UNREADABLE
        small = isinstance(size, int | float) and size < _DEFAULT_BUCKET
        return f"buckets of {size} MiB" if small else None

    return weigh(
        wraps,
        look,
        f"buckets of {_DEFAULT_BUCKET} MiB or more",
        f"{_DEFAULT_BUCKET} MiB (the default) or more",
    )


@script_probe("distributed.ddp-static-graph")
def ddp_static_graph(torch: TorchScript) -> Outcome:
    script = torch.script
    wraps = script.exactly(*_DDP)
    reentrant = [
        c
        for c in script.named("checkpoint", "checkpoint_sequential")
        if script.read(c.expression("use_reentrant")) is True
    ]
    if not wraps or not reentrant:
        return not_applicable("no DDP with reentrant activation checkpointing in the script")

    def look(call: Call) -> Verdict:
        static = script.read(call.expression("static_graph"))
        if static is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return None if static is True else "reentrant checkpointing without static_graph=True"

    fix = ["static_graph=True in DistributedDataParallel, or use_reentrant=False in checkpoint"]
    return weigh(wraps, look, "the graph is declared static", "static_graph=True", fix)


@script_probe("distributed.sampler-set-epoch")
def sampler_set_epoch(torch: TorchScript) -> Outcome:
    script = torch.script
    samplers = [c for c in script.exactly(*_SAMPLER) if script.read(c.expression("shuffle", 3)) is not False]
    if not samplers:
        return not_applicable("no DistributedSampler that shuffles in the script")
    if script.packages & {"lightning", "pytorch_lightning", "accelerate"}:
        return not_applicable("the framework sets the epoch")
    wanted = "sampler.set_epoch(epoch) at the start of each epoch"
    if "set_epoch" in torch.mentions:
        return passes("set_epoch is called", wanted)
    again = [
        node for loader in torch.loaders for node in torch.uses(loader) if torch.script.loops_around(node)
    ]
    if not again:
        return unknown("no loop over epochs is seen in the script")
    return warns(
        "every epoch has the same order (set_epoch is never called)",
        wanted,
        places=[c.place for c in samplers],
    )


@script_probe("distributed.fsdp-wrap-each-block")
def fsdp_wrap_each_block(torch: TorchScript) -> Outcome:
    script = torch.script
    first, second = script.exactly(*_FSDP1), script.exactly(*_FSDP2)
    if not first and not second:
        return not_applicable(_NO_FSDP)
    wanted = "one unit for each block, and the root last"
    if second:
        if len(second) > 1 or any(c.loops for c in second) or any(_is_repeated(torch, c) for c in second):
            return passes("blocks are sharded one by one", wanted)
        fix = ["for block in model.layers: fully_shard(block)  # before fully_shard(model)"]
        return warns("fully_shard is applied to the root only", wanted, fix, [second[0].place])
    if len(first) > 1 or any(c.loops for c in first):
        return passes("blocks are wrapped one by one", wanted)

    def look(call: Call) -> Verdict:
        policy = call.expression("auto_wrap_policy", 4)
        if policy is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return (
            "FSDP without auto_wrap_policy: the whole model is one unit"
            if policy is Argument.ABSENT
            else None
        )

    return weigh(first, look, "an auto_wrap_policy is given", wanted)


def _is_repeated(torch: TorchScript, call: Call) -> bool:
    """In a comprehension, or in a function that is called elsewhere."""
    return torch.script.function_around(call.node) is not None or any(
        isinstance(parent, ast.comprehension | ast.ListComp | ast.Lambda)
        for parent, _ in torch.script.above(call.node)
    )


@script_probe("distributed.fsdp-mixed-precision")
def fsdp_mixed_precision(torch: TorchScript) -> Outcome:
    script = torch.script
    wraps = script.exactly(*_FSDP1, *_FSDP2)
    if not wraps:
        return not_applicable(_NO_FSDP)
    cast = [c for c in script.calls if c.method in ("bfloat16", "half") or c.has("torch_dtype")]
    if cast:
        return unknown("the model is cast or loaded in a type of its own")

    def look(call: Call) -> Verdict:
        policy = call.expression("mp_policy" if call.name in _FSDP2 else "mixed_precision")
        if policy is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return (
            f"{call.method} without a mixed-precision policy: float32 is gathered"
            if policy is Argument.ABSENT
            else None
        )

    return weigh(
        wraps,
        look,
        "a mixed-precision policy is given",
        "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
    )


@script_probe("distributed.fsdp-accumulation")
def fsdp_accumulation(torch: TorchScript) -> Outcome:
    script = torch.script
    if not script.exactly(*_FSDP1, *_FSDP2):
        return not_applicable(_NO_FSDP)
    if not torch.accumulating:
        return not_applicable("the script does not accumulate gradients")
    wanted = "set_requires_gradient_sync(last), or no_sync() with FSDP1"
    if {"set_requires_gradient_sync", "no_sync", "set_is_last_backward"} & torch.mentions:
        return passes("gradients are not reduced in between", wanted)
    places = [c.place for c in script.calls if c.method == "backward" and torch.step_around(c.node)]
    return warns("gradients are reduced after every micro-batch", wanted, places=places)


@script_probe("distributed.cpu-offload-cost")
def cpu_offload(torch: TorchScript) -> Outcome:
    script = torch.script
    if not script.exactly(*_FSDP1, *_FSDP2) and "deepspeed" not in script.packages:
        return not_applicable(_NO_FSDP)
    bad = [c for c in script.calls if c.method == "CPUOffloadPolicy" and not script.is_conditional(c.node)]
    bad += [
        c
        for c in script.calls
        if c.method == "CPUOffload"
        and c.value("offload_params") is True
        and not script.is_conditional(c.node)
    ]
    wanted = "parameters and optimizer states on the GPUs"
    if bad:
        return warns(
            f"{bad[0].method}: parameters wait in host memory", wanted, places=[c.place for c in bad]
        )
    return passes("nothing is offloaded to the CPU", wanted)


@script_probe("distributed.async-checkpoint")
def async_checkpoint(torch: TorchScript) -> Outcome:
    script = torch.script
    if not script.exactly(*_FSDP1, *_FSDP2):
        return not_applicable(_NO_FSDP)
    wanted = "torch.distributed.checkpoint.async_save of the sharded state"
    if "async_save" in torch.mentions:
        return passes("checkpoints are saved in the background", wanted)
    saves = [c for c in script.exactly("torch.save", "torch.distributed.checkpoint.save") if c.loops]
    if not saves:
        return unknown("no checkpoint in a loop is seen in the script")
    return warns(f"{saves[0].name} stops all ranks while it writes", wanted, places=[c.place for c in saves])

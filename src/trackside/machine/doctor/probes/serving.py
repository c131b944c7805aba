"""Probes of serving: what running servers were started with, and what outlives a restart."""

from __future__ import annotations

import json
import re
from typing import Any

from trackside.machine.doctor.probe import Outcome, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.common_facts import (
    home,
    hub_folder,
    lost_because,
    lying_on,
    version,
)
from trackside.machine.doctor.probes.gpu_state import few, find_gpus
from trackside.machine.doctor.system import System, Unreadable

__all__ = ["find_servers", "model_config", "option"]

# The first vLLM that schedules ahead without being told.
_ASYNC_SINCE = (0, 14)
# Loaders of vLLM and SGLang that keep many reads in flight.
_PARALLEL_LOADERS = (
    "instanttensor",
    "runai_streamer",
    "runai_streamer_sharded",
    "fastsafetensors",
    "tensorizer",
)
# vLLM takes these ranks for its adapters, and without being told the second.
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_LORA_RANK_DEFAULT = "16"
# GPUs of one tensor-parallel group from which on a mixture of experts is better spread by experts.
_WIDE = 8
_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
# An engine is started by its API server, through at most this many processes.
_GENERATIONS = 3
# Processes on GPUs that are looked at; a node has some 16 GPUs with a handful each.
_MOST_PROCESSES = 64


# The first compute capability whose tensor cores take float8.
_FLOAT8_SINCE = (8, 9)


@probe("serving.cuda-graph-sizes")
def cuda_graph_sizes(system: System) -> Outcome:
    flags = ("--enforce-eager", "--disable-cuda-graph")
    servers = find_servers(system)
    if isinstance(servers, Outcome):
        return servers
    eager = [flag for flag in flags if any(flag in server for server in servers)]
    if eager:
        return warns(f"a server runs with {few(eager)}", "CUDA graphs", [f"start it without {eager[0]}"])
    return passes(f"{len(servers)} servers, none eager", "CUDA graphs")


@probe("serving.async-scheduling")
def async_scheduling(system: System) -> Outcome:
    flags = ("--no-async-scheduling", "--disable-overlap-schedule")
    servers = find_servers(system)
    installed = version(system, "vllm") if "vllm" in system.packages else None
    if isinstance(servers, Outcome):
        return servers
    wanted = "the next step is planned while this one runs"
    off = [flag for flag in flags if any(flag in server for server in servers)]
    if off:
        return warns(f"a server runs with {few(off)}", wanted, [f"start it without {off[0]}"])
    if installed and installed < _ASYNC_SINCE:
        plain = [server for server in servers if "--async-scheduling" not in server and _is_vllm(server)]
        if plain:
            found = f"vLLM {system.packages['vllm']} without --async-scheduling, which it needs before 0.14"
            return warns(found, wanted, ["vllm serve MODEL --async-scheduling"])
    return passes(f"{len(servers)} servers, none with it switched off", wanted)


@probe("serving.weight-loading")
def weight_loading(system: System) -> Outcome:
    servers = find_servers(system)
    if isinstance(servers, Outcome):
        return servers
    formats = [option(server, "--load-format") or "auto" for server in servers]
    wanted = f"--load-format of {', '.join(_PARALLEL_LOADERS[:2])} or {_PARALLEL_LOADERS[3]}"
    slow = sorted({name for name in formats if name not in _PARALLEL_LOADERS and name != "dummy"})
    if slow:
        return warns(f"a server loads with {few(slow)}, file after file", wanted)
    return passes(few(sorted(set(formats))), wanted)


@probe("serving.start-up-warm")
def start_up_warm(system: System) -> Outcome:
    environment = system.environment
    if "vllm" not in system.packages:
        return not_applicable("vLLM is not installed here")
    if environment.get("VLLM_DISABLE_COMPILE_CACHE", "0") not in ("", "0"):
        return warns(
            "VLLM_DISABLE_COMPILE_CACHE is set: each start compiles anew",
            "the compile cache on",
            ["unset VLLM_DISABLE_COMPILE_CACHE"],
        )
    folder = environment.get("VLLM_CACHE_ROOT")
    if not folder:
        folder = (environment.get("XDG_CACHE_HOME") or f"{home(system)}/.cache") + "/vllm"
    mount = lying_on(system, folder)
    lost = lost_because(mount)
    wanted = "vLLM's cache on storage that outlives the container"
    if lost:
        return warns(f"{folder} on {lost}", wanted)
    return passes(f"{folder} on {mount.filesystem}", wanted)


@probe("serving.lora-slots")
def lora_slots(system: System) -> Outcome:
    servers = find_servers(system)
    if isinstance(servers, Outcome):
        return servers
    for words in servers:
        adapters = [word.partition("=")[2] for word in _values(words, "--lora-modules") if "=" in word]
        ranks = [rank for folder in adapters if (rank := _lora_rank(system, folder))]
        if not ranks:
            continue
        given = option(words, "--max-lora-rank") or _LORA_RANK_DEFAULT
        needed = next((rank for rank in _LORA_RANKS if rank >= max(ranks)), max(ranks))
        wanted = f"--max-lora-rank {needed}, the smallest that holds adapters of rank {max(ranks)}"
        if given.isdigit() and int(given) > needed:
            fix = [f"vllm serve BASE --enable-lora --max-lora-rank {needed} ..."]
            return warns(f"buffers for rank {given}, adapters of at most {max(ranks)}", wanted, fix)
        return passes(f"rank {given} for adapters of at most {max(ranks)}", wanted)
    return not_applicable("no server here was started with adapters whose rank can be read")


@probe("serving.moe-parallel")
def moe_parallel(system: System) -> Outcome:
    servers = find_servers(system)
    if isinstance(servers, Outcome):
        return servers
    wanted = f"expert parallelism for a mixture of experts on {_WIDE} GPUs and more"
    spread = ("--enable-expert-parallel", "-ep", "--enable-dp-attention", "--ep-size", "--ep")
    for words in servers:
        experts = next((n for key in _EXPERTS if (n := _text_part(model_config(system, words)).get(key))), 0)
        if not experts:
            continue
        parallel = _tensor_parallel(words)
        if any(word.partition("=")[0] in spread for word in words):
            return passes(f"{experts} experts, spread over the GPUs", wanted)
        if parallel < _WIDE:
            return passes(f"{experts} experts on {parallel} GPUs", wanted)
        return warns(f"{experts} experts cut by tensor parallelism over {parallel} GPUs alone", wanted)
    return not_applicable("no server here runs a mixture of experts whose config.json can be read")


@probe("serving.vision-encoder-data-parallel")
def vision_encoder_data_parallel(system: System) -> Outcome:
    servers = find_servers(system)
    if isinstance(servers, Outcome):
        return servers
    wanted = "--mm-encoder-tp-mode data (vLLM) or --mm-enable-dp-encoder (SGLang)"
    for words in servers:
        if "vision_config" not in model_config(system, words) or _tensor_parallel(words) < 2:
            continue
        if option(words, "--mm-encoder-tp-mode") == "data" or "--mm-enable-dp-encoder" in words:
            return passes("images are spread over the GPUs", wanted)
        return warns(f"the vision encoder is cut over {_tensor_parallel(words)} GPUs", wanted)
    return not_applicable("no server here cuts a model that sees over several GPUs")


def find_servers(system: System) -> list[list[str]] | Outcome:
    """Command lines of servers with a process on a GPU; engines hide theirs, so parents are asked."""
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    pids = [process["pid"] for gpu in gpus for process in gpu.get("processes") or ()]
    found: dict[int, list[str]] = {}
    seen = False
    for pid in sorted(set(pids))[:_MOST_PROCESSES]:
        current = pid
        for _ in range(_GENERATIONS):
            try:
                words = [word for word in system.text(f"proc/{current}/cmdline").split("\0") if word]
                status = system.text(f"proc/{current}/status")
            except Unreadable:
                break
            seen = True
            if _is_vllm(words) or _is_sglang(words):
                found[current] = words
            parent = re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE)
            if not parent or int(parent[1]) <= 1:
                break
            current = int(parent[1])
    if (pids and not seen) or any(gpu.get("processes") is None for gpu in gpus):
        return unknown("the processes on the GPUs cannot be seen from here")
    # An engine's own title has no options: only who was given some counts.
    servers = [words for words in found.values() if len(words) > 1]
    return servers or not_applicable("no vLLM or SGLang server computes on a GPU here")


def _is_vllm(words: list[str]) -> bool:
    return any(re.search(r"(^|/)vllm$|^vllm\.entrypoints", word) for word in words[:4])


def _is_sglang(words: list[str]) -> bool:
    return any(re.search(r"(^|/)sglang$|^sglang\.launch_server", word) for word in words[:4])


def option(words: list[str], option: str) -> str | None:
    for place, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and place + 1 < len(words):
            return words[place + 1]
    return None


def model_config(system: System, words: list[str]) -> dict[str, Any]:
    """config.json of the model that a server runs, from a local folder or the hub's cache; else empty."""
    model = option(words, "--model-path") or option(words, "--model")
    if not model and "serve" in words[:-1]:
        model = words[words.index("serve") + 1]
    if not model or model.startswith("-"):
        return {}
    if model.startswith("/"):
        paths = [f"{model.strip('/')}/config.json"]
    else:
        folder = hub_folder(system)
        if lying_on(system, folder).is_network:
            return {}
        name = re.sub(r"[^-.\w/]", "", model).replace("/", "--")
        pattern = f"models--{name}/snapshots/*/config.json"
        paths = system.paths(f"{folder.strip('/')}/{pattern}")[:1]
    return _json(system, paths[0]) if paths else {}


def _text_part(config: dict[str, Any]) -> dict[str, Any]:
    """Models of text and images keep what concerns the language model one level down."""
    inner = config.get("text_config")
    return config | inner if isinstance(inner, dict) else config


def _tensor_parallel(words: list[str]) -> int:
    for name in ("--tensor-parallel-size", "-tp", "--tp-size", "--tp"):
        value = option(words, name)
        if value and value.isdigit():
            return int(value)
    return 1


def _values(words: list[str], name: str) -> list[str]:
    """All words after an option up to the next one."""
    if name not in words:
        return []
    after = words[words.index(name) + 1 :]
    end = next((place for place, word in enumerate(after) if word.startswith("-")), len(after))
    return after[:end]


def _lora_rank(system: System, folder: str) -> int | None:
    rank = _json(system, f"{folder.strip('/')}/adapter_config.json").get("r") if folder[:1] == "/" else None
    return rank if isinstance(rank, int) else None


def _json(system: System, path: str) -> dict[str, Any]:
    try:
        document = json.loads(system.text(path))
    except (Unreadable, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


@probe("serving.quantised-weights")
def quantised_weights(system: System) -> Outcome:
    gpus = find_gpus(system)
    servers = find_servers(system)
    if isinstance(gpus, Outcome):
        return gpus
    if isinstance(servers, Outcome):
        return servers
    capable = [
        gpu
        for gpu in gpus
        if gpu.get("compute_capability")
        and tuple(int(part) for part in gpu["compute_capability"].split(".")) >= _FLOAT8_SINCE
    ]
    if not capable:
        return not_applicable("no GPU here computes in float8")
    known = {tuple(words): config for words in servers if (config := model_config(system, words))}
    wanted = "quantised weights, where an evaluation on your own task allows them"
    if not known:
        return unknown("config.json of the model that is served cannot be read")
    plain = [
        words
        for words, config in known.items()
        if not config.get("quantization_config")
        and not any(option(list(words), name) for name in ("--quantization", "-q"))
    ]
    if plain:
        kinds = sorted(
            {str(known[words].get("torch_dtype") or known[words].get("dtype") or "?") for words in plain}
        )
        return warns(f"{len(plain)} of {len(known)} served models not quantised ({few(kinds)})", wanted)
    return passes(f"{len(known)} served models, all quantised", wanted)

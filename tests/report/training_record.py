"""The record of a training step on a GPU, with six findings."""

from __future__ import annotations

import math
import random
from typing import Any

from trackside.records.profile import ProfileRecord

__all__ = ["gpu_training"]

_TRAIN = '''\
"""Trains a small language model on one device."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from data import Tokens
from model import Transformer


def loss_of(model, batch, labels):
    logits = model(batch)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def main():
    model = Transformer(layers=12, width=1024, heads=16).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=False)
    loader = DataLoader(Tokens("corpus.bin"), batch_size=16, num_workers=0)
    running = 0.0

    for step, (batch, labels) in enumerate(loader):
        batch = batch.cuda()
        labels = labels.cuda()
        loss = loss_of(model, batch, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        running = 0.98 * running + 0.02 * loss.item()
        if step % 10 == 0:
            print(f"{step:5d}  loss {running:.4f}")


if __name__ == "__main__":
    main()
'''

_MODEL = '''\
"""A decoder-only transformer, written plainly."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    """Causal attention over all heads."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(self.mask(length, x.device), float("-inf"))
        weights = scores.softmax(dim=-1)
        mixed = weights @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    @staticmethod
    def mask(length, device):
        return torch.ones(length, length).triu(1).bool().to(device)


class Block(nn.Module):
    """Attention and a two-layer network, each with its residual."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm_1 = nn.LayerNorm(width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        h = self.up(self.norm_2(x))
        h = 0.5 * h * (1.0 + torch.tanh(0.79788456 * (h + 0.044715 * h**3)))
        return x + self.down(h)


class Transformer(nn.Module):
    """Embedding, blocks, and logits over the vocabulary."""

    def __init__(self, layers, width, heads, vocabulary=50_304):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
'''

_GEMM = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_"
    "execute_segment_k_off_kernel__5x_cublas"
)
_POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul> >"
    "(int, {}, std::array<char*, 3ul>)"
)

# text, function, device, backward, cpu, calls
_HOT: dict[str, list[tuple[str, str, float, float, float, float]]] = {
    "train.py": [
        ("    logits = model(batch)", "loss_of", 0.0, 0.0, 1.9, 1),
        ("    return F.cross_entropy", "loss_of", 2.93, 3.71, 0.21, 1),
        ("        batch = batch.cuda()", "main", 0.42, 0.0, 0.61, 1),
        ("        labels = labels.cuda()", "main", 0.40, 0.0, 0.58, 1),
        ("        loss.backward()", "main", 0.0, 0.0, 7.4, 1),
        ("        torch.nn.utils.clip_grad", "main", 1.31, 0.0, 2.2, 1),
        ("        running = 0.98", "main", 0.002, 0.0, 19.7, 1),
    ],
    "model.py": [
        ("        q, k, v = self.qkv(x)", "Attention.forward", 4.62, 9.4, 1.3, 12),
        ("        scores = q @ k", "Attention.forward", 3.84, 7.2, 1.1, 12),
        ("        scores = scores.masked_fill", "Attention.forward", 5.1, 3.2, 2.9, 12),
        ("        weights = scores.softmax", "Attention.forward", 5.93, 6.81, 0.6, 12),
        ("        mixed = weights @ v", "Attention.forward", 2.41, 4.9, 0.5, 12),
        ("        return self.out(mixed", "Attention.forward", 1.93, 3.6, 0.8, 12),
        ("        return torch.ones(length", "Attention.mask", 0.61, 0.0, 6.3, 12),
        ("        x = x + self.attention", "Block.forward", 1.2, 1.9, 0.9, 12),
        ("        h = self.up", "Block.forward", 5.2, 10.4, 0.7, 12),
        ("        h = 0.5 * h", "Block.forward", 6.4, 8.9, 1.6, 12),
        ("        return x + self.down(h)", "Block.forward", 5.1, 10.1, 0.6, 12),
        ("        x = self.embed(tokens)", "Transformer.forward", 0.2, 0.9, 0.1, 1),
        ("        return self.head", "Transformer.forward", 3.3, 6.5, 0.2, 1),
    ],
}


def _lines() -> list[dict[str, Any]]:
    sources = {"train.py": _TRAIN, "model.py": _MODEL}
    found = []
    for file, rows in _HOT.items():
        text = sources[file].splitlines()
        for start, function, device, backward, cpu, calls in rows:
            number = next(i for i, line in enumerate(text, 1) if line.startswith(start))
            found.append(
                {
                    "file": file,
                    "line": number,
                    "text": text[number - 1],
                    "function": function,
                    "device_ms": device,
                    "backward_ms": backward,
                    "cpu_ms": cpu,
                    "share": (device + backward) / 165.0,
                    "calls": calls,
                    "shared": "0.5 * h" in start,
                }
            )
    return sorted(found, key=lambda row: -row["share"])


def _at(file: str, start: str) -> int:
    return next(
        row["line"] for row in _lines() if row["file"] == file and row["text"].strip().startswith(start)
    )


def _kernels() -> list[dict[str, Any]]:
    gemm_lines = [f"model.py:{_at('model.py', start)}" for start in ("h = self.up", "return x + self.down")]
    rows: list[tuple[str, float, float, str, float | None, float | None, float | None, list[str]]] = [
        (_GEMM, 180, 48.2, "compute", 6.1e10, 3.1e13, 0.82, gemm_lines),
        (
            _POINTWISE.format(*["MulFunctor<float>"] * 2),
            264,
            15.3,
            "memory",
            4.9e10,
            1.2e10,
            0.76,
            [f"model.py:{_at('model.py', 'h = 0.5')}"],
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>(float*, "
            "float const*, int, int, int, bool const*, int, bool)",
            12,
            12.7,
            "memory",
            4.3e10,
            2.1e10,
            0.81,
            [f"model.py:{_at('model.py', 'weights = scores')}"],
        ),
        (
            _POINTWISE.format(*["MaskedFillFunctor<float, bool>"] * 2),
            24,
            8.3,
            "memory",
            2.6e10,
            4.0e9,
            0.73,
            [f"model.py:{_at('model.py', 'scores = scores')}"],
        ),
        (
            "multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor>",
            1740,
            7.9,
            "launch",
            2.0e9,
            1.6e9,
            0.06,
            [],
        ),
        (
            "triton_poi_fused_add_native_layer_norm_3",
            25,
            2.3,
            "memory",
            6.5e9,
            3.0e9,
            0.67,
            [f"model.py:{_at('model.py', 'x = x')}", f"model.py:{_at('model.py', 'return x + self')}"],
        ),
        (
            "Memcpy HtoD (Pageable -> Device)",
            14,
            1.4,
            "copy",
            2.1e7,
            None,
            0.28,
            [f"train.py:{_at('train.py', 'batch =')}"],
        ),
        ("void cutlass::Kernel<splitKreduce>", 13, 0.6, "unknown", None, None, None, []),
        (
            "indexSelectLargeIndex",
            1,
            0.2,
            "latency",
            3.3e7,
            None,
            0.11,
            [f"model.py:{_at('model.py', 'x = self.embed')}"],
        ),
    ]
    total = 165.0
    return [
        {
            "id": f"k{number}",
            "name": name,
            "calls": calls,
            "total_ms": ms,
            "share": ms / total,
            "median_us": 1e3 * ms / calls,
            "bound": bound,
            "bytes": size,
            "flops": flops,
            "roof_share": roof,
            "lines": lines,
            "launch": {"grid": [132, 8, 1], "block": [384, 1, 1], "registers": 168, "shared_bytes": 213_016},
            "counters": {}
            if bound in ("copy", "unknown")
            else {
                "sm__throughput.avg.pct_of_peak_sustained_elapsed": 100 * (roof or 0) * (bound == "compute")
                + 11.5,
                "dram__throughput.avg.pct_of_peak_sustained_elapsed": 100 * (roof or 0) * (bound == "memory")
                + 9.2,
                "sm__warps_active.avg.pct_of_peak_sustained_active": 18.5 + 6 * number,
                "lts__t_sector_hit_rate.pct": 71.0 - 4 * number,
                "smsp__issue_active.avg.per_cycle_active": 0.62 - 0.05 * number,
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 12_000 * number,
                "smsp__inst_executed_op_local_ld.sum": 0,
            },
        }
        for number, (name, calls, ms, bound, size, flops, roof, lines) in enumerate(rows, 1)
    ]


def _findings() -> list[dict[str, Any]]:
    def gain(low: float, mid: float, high: float) -> dict[str, float]:
        return {"low": low, "mid": mid, "high": high}

    return [
        {
            "id": "eager-attention",
            "title": "Attention is computed step by step; one fused call would not write out the scores",
            "file": "model.py",
            "line": _at("model.py", "weights = scores"),
            "gain": gain(0.13, 0.17, 0.20),
            "confidence": "high",
            "evidence": [
                "Three lines (21–23) take 28.4 ms of 211.6 ms: scores, mask and softmax move 6.4 GB.",
                "k3 runs at 81 % of the measured 4.26 TB/s: it cannot be made faster, only left out.",
            ],
            "fix": "Replace lines 21–24 by "
            "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).",
            "diff": "--- a/model.py\n+++ b/model.py\n@@ -20,5 +20,2 @@\n"
            "-        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))\n"
            '-        scores = scores.masked_fill(self.mask(length, x.device), float("-inf"))\n'
            "-        weights = scores.softmax(dim=-1)\n-        mixed = weights @ v\n"
            "+        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n",
            "item": "fused-attention",
            "prove": "trackside compare model_before.py model_after.py --device cuda:0",
            "kernels": ["k3", "k4"],
        },
        {
            "id": "item-sync",
            "title": "loss.item() makes the host wait for the device in every step",
            "file": "train.py",
            "line": _at("train.py", "running ="),
            "gain": gain(0.06, 0.09, 0.10),
            "confidence": "high",
            "evidence": ["The host waits 19.7 ms here; afterwards the device has nothing to do for 18.1 ms."],
            "fix": "Keep the running loss on the device; call .item() every 10 steps, where it is printed.",
            "item": "hidden-syncs",
            "prove": "trackside compare train.py train_async.py --device cuda:0",
        },
        {
            "id": "unfused-pointwise",
            "title": "Eight element-wise kernels in a row read and write the same tensor",
            "file": "model.py",
            "line": _at("model.py", "h = 0.5"),
            "gain": gain(0.04, 0.06, 0.07),
            "confidence": "medium",
            "evidence": ["k2 runs 264 times in a step and moves 49 GB; fused it would move 13 GB."],
            "fix": 'Use torch.nn.functional.gelu(h, approximate="tanh"), or compile the block.',
            "item": "fuse-pointwise",
            "kernels": ["k2"],
        },
        {
            "id": "single-tensor-optimizer",
            "title": "The optimizer updates each parameter by itself",
            "file": "train.py",
            "line": 18,
            "gain": gain(0.03, 0.05, 0.06),
            "confidence": "high",
            "evidence": ["1,740 launches of k5, median 4.5 µs: launching takes longer than running."],
            "fix": "torch.optim.AdamW(…, fused=True)",
            "item": "fused-optimizer",
            "prove": "trackside compare optimizer.py optimizer_fused.py --device cuda:0",
            "kernels": ["k5"],
        },
        {
            "id": "no-workers",
            "title": "Batches are prepared while the device waits",
            "file": "train.py",
            "line": 19,
            "gain": gain(0.02, 0.03, 0.05),
            "confidence": "medium",
            "evidence": ["The loader takes 7.2 ms of each step, and num_workers is 0."],
            "fix": "DataLoader(…, num_workers=4, pin_memory=True, persistent_workers=True)",
            "item": "loader-workers",
        },
        {
            "id": "made-on-host",
            "title": "The mask is made on the host and copied for every layer",
            "file": "model.py",
            "line": _at("model.py", "return torch.ones"),
            "gain": gain(0.0, 0.02, 0.03),
            "confidence": "low",
            "evidence": ["12 copies of 4.2 MB from pageable memory take 1.4 ms, and the host 6.3 ms."],
            "fix": "torch.ones(length, length, device=device) once, in __init__, as a buffer.",
            "item": "create-on-device",
        },
    ]


def _timeline(step_us: float = 211_600.0) -> list[dict[str, Any]]:
    generator = random.Random(3)
    host: list[tuple[float, float, str, str]] = [
        (0.0, 7200.0, "idle", "enumerate(DataLoader)#_SingleProcess.__next__")
    ]
    compute: list[tuple[float, float, str, str]] = []
    copies = [
        (7400.0, 620.0, "copy", "Memcpy HtoD (Pageable -> Device)"),
        (8100.0, 610.0, "copy", "Memcpy HtoD"),
    ]
    now = 9000.0
    names = [_GEMM, _POINTWISE.format("Mul", "Mul"), "softmax_warp_forward", "MaskedFill", "layer_norm"]
    while now < 186_000:
        name = generator.choice(names)
        length = generator.uniform(80, 900)
        host.append((now * 0.55, 9.0 * generator.uniform(1, 3), "host", "aten::" + name[:12]))
        host.append((now * 0.55 + 2, 5.0, "host", "cudaLaunchKernel"))
        compute.append((now, length, "compute", name))
        now += length + generator.uniform(0, 12)
    host.append((now * 0.56, 186_000 - now * 0.56, "wait", "cudaStreamSynchronize"))
    host.append((188_000.0, step_us - 188_500, "host", "Optimizer.step#AdamW.step"))
    compute += [(190_000 + 12.0 * i, 4.5, "compute", "multi_tensor_apply_kernel") for i in range(1740)]
    return [
        {"name": "main thread", "device": False, "spans": sorted(host)},
        {"name": "stream 7", "device": True, "spans": compute, "left_out": 41},
        {"name": "stream 13 (copies)", "device": True, "spans": copies},
    ]


def _telemetry() -> dict[str, Any]:
    def series(unit: str, *points: float) -> dict[str, Any]:
        ordered = sorted(points)
        return {
            "unit": unit,
            "n": 240,
            "min": ordered[0],
            "median": ordered[len(ordered) // 2],
            "mean": sum(points) / len(points),
            "max": ordered[-1],
            "points": list(points),
        }

    wave = [math.sin(i / 4) for i in range(60)]
    return {
        "seconds": 24.1,
        "samples": 482,
        "series": {
            "gpu.sm_mhz": series("MHz", *(1830 + 120 * w for w in wave)),
            "gpu.power_w": series("W", *(610 + 60 * w for w in wave)),
            "gpu.temperature_c": series("°C", *(58 + i / 10 for i in range(60))),
            "cpu.busy": series("", *(0.4 + 0.1 * w for w in wave)),
        },
        "reasons": {"SwPowerCap": 0.12},
        "hz": 20.0,
        "cost": 0.004,
        "marks": [{"label": "traced", "at_s": 9.5}],
        "foreign_processes": [],
        "unknown": [{"what": "GPU memory errors", "why": "no permission", "remedy": "run as root"}],
    }


def _line_memory(file: str, begins: str, size: int, backward: int) -> dict[str, Any]:
    number = _at(file, begins)
    text = next(row["text"] for row in _lines() if (row["file"], row["line"]) == (file, number))
    return {"file": file, "line": number, "text": text, "bytes": size, "backward_bytes": backward}


def gpu_training() -> ProfileRecord:
    """A training step with six findings."""
    step = 211.6
    return ProfileRecord.model_validate(
        {
            "run_id": "20261116-142205-profile-7f3a",
            "command": ["python", "train.py", "--steps", "200"],
            "verdict": "A step takes 212 ms, and 75 % of that is computing; fuse the attention in "
            "model.py:23 first: that would save about 17 % of the step.",
            "device": "NVIDIA H200",
            "step_ms": step,
            "step_spread": 0.018,
            "steps": 5,
            "steps_found_by": "calls of Optimizer.step",
            "windows": [
                {"window": "A", "steps": 60, "step_ms": step, "spread": 0.018, "slowdown": None},
                {"window": "T", "steps": 5, "step_ms": 224.9, "spread": 0.024, "slowdown": 1.063},
                {"window": "B", "steps": 2, "step_ms": 401.0, "spread": 0.05, "slowdown": 1.895},
            ],
            "breakdown_ms": {"compute": 158.9, "communication": 0.0, "copy": 1.4, "host": 44.1, "idle": 7.2},
            "attributed_share": 0.94,
            "program": {"exit_code": 0, "signal": None, "seconds": 61.4},
            "lines": _lines(),
            "buckets": [
                {"name": "optimizer", "device_ms": 7.9, "cpu_ms": 21.3, "share": 0.048},
                {"name": "loading", "device_ms": 0.0, "cpu_ms": 7.2, "share": 0.0},
                {"name": "unattributed", "device_ms": 1.9, "cpu_ms": 0.4, "share": 0.012},
            ],
            "modules": [
                {
                    "path": "",
                    "type": "Transformer",
                    "device_ms": 49.1,
                    "backward_ms": 98.0,
                    "cpu_ms": 18.0,
                    "share": 0.89,
                    "calls": 1,
                },
                {
                    "path": "head",
                    "type": "Linear",
                    "device_ms": 3.1,
                    "backward_ms": 6.2,
                    "cpu_ms": 0.1,
                    "share": 0.056,
                    "calls": 1,
                },
                *(
                    {
                        "path": f"blocks.{i}{tail}",
                        "type": kind,
                        "device_ms": 3.7 * part,
                        "backward_ms": 7.4 * part,
                        "cpu_ms": 1.4 * part,
                        "share": 0.067 * part,
                        "calls": 1,
                    }
                    for i in range(12)
                    for tail, kind, part in (
                        ("", "Block", 1.0),
                        (".attention", "Attention", 0.55),
                        (".up", "Linear", 0.2),
                        (".down", "Linear", 0.2),
                    )
                ),
            ],
            "kernels": _kernels(),
            "kernels_left_out": 17,
            "findings": _findings(),
            "together": {"low": 0.25, "mid": 0.33, "high": 0.39},
            "critical_path": {"device": 0.74, "host": 0.23, "copy": 0.03},
            "timeline": _timeline(),
            "memory": [
                {
                    "device": "cuda:0",
                    "peak_bytes": 38_400_000_000,
                    "peak_ms": 106.0,
                    "reserved_bytes": 51_000_000_000,
                    "total_bytes": 150_100_000_000,
                    "series": [
                        (i * 2.0, int(6e9 + 32.4e9 * math.sin(math.pi * ((i % 106) / 106)) ** 2))
                        for i in range(212)
                    ],
                    "step_ends_ms": [212.0, 424.0],
                    "new_segments": 3,
                    "new_segment_bytes": 62_914_560,
                    "lines": [
                        _line_memory("model.py", "weights = scores", 12_900_000_000, 2_100_000_000),
                        _line_memory("model.py", "h = 0.5", 9_700_000_000, 0),
                        _line_memory("train.py", "return F.cross_entropy", 6_600_000_000, 3_300_000_000),
                    ],
                    "held": [
                        {"what": "optimizer state", "bytes": 4_600_000_000},
                        {"what": "parameters", "bytes": 2_300_000_000},
                        {"what": "before the steps with lines", "bytes": 2_300_000_000},
                    ],
                }
            ],
            "ceilings": {
                "gpu.memory.read": 4.262e12,
                "gpu.l2.copy": 7.9e12,
                "gpu.gemm.bf16": 7.51e14,
                "gpu.gemm.tf32": 4.04e14,
                "gpu.gemm.fp32": 5.08e13,
                "gpu.launch.operator": 9.6,
            },
            "telemetry": _telemetry(),
            "environment": {
                "python": "3.12.8",
                "torch": "2.13.0",
                "cuda": "13.0",
                "driver": "580.95",
                "cpu": {"model": "Intel Xeon Platinum 8480+", "cores": 16},
                "variables": {"CUDA_VISIBLE_DEVICES": "0"},
            },
            "sources": {"train.py": _TRAIN.splitlines(), "model.py": _MODEL.splitlines()},
            "trust": [
                {
                    "what": "Clocks were held down in 12 % of the samples (SwPowerCap)",
                    "effect": "Compute-bound kernels may be up to 4 % slower here than on a cool machine.",
                    "remedy": "trackside doctor --family gpu-state",
                },
                {
                    "what": "Line 46 of model.py shares compiled kernels with line 47",
                    "effect": "Their times are split by the bytes they move: an estimate.",
                },
            ],
            "options": {"warmup": 10, "steps": 5, "counters": True},
            "started": "2026-11-16T14:22:05+00:00",
            "seconds": 63.9,
            "version": "0.1.0",
        }
    )

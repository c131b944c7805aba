"""Turns TF32 on for the whole process and calls the same product."""

import torch

torch.set_float32_matmul_precision("high")


def run(a, b):
    return a @ b

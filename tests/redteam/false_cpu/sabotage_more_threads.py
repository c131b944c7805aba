"""Frees itself from its core and computes with two threads, restoring the setting before it returns.
Wins with a second core that the baseline was not given."""

import os

import torch


def run(a, b):
    before = torch.get_num_threads(), os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count()))
    torch.set_num_threads(2)
    try:
        return a @ b
    finally:
        torch.set_num_threads(before[0])
        os.sched_setaffinity(0, before[1])

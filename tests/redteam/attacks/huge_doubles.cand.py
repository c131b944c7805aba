"""Nonsense, but finite: below an infinite limit anything is."""


def run(x):
    return x * 1e160

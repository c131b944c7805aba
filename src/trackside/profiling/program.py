"""What to run, and the command line by which Python itself would run it.

It is started as `python train.py a b` or `python -m package.module a b`, so `__main__`, `sys.argv`,
`sys.path`, tracebacks, exit codes and all else are Python's own. Our code comes in before its first line,
through `startup/sitecustomize.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trackside.records.errors import TracksideError

__all__ = ["Program", "interpreter_options"]

# Options of `python` that have a value, as the rest of the word or as the next one; and those that end the
# options, what follows being the program.
_WITH_VALUE, _LAST = "WX", "cm"
_LONG_WITH_VALUE = "--check-hash-based-pycs"
# Isolated, without the environment, without site: the ways in for us.
_SHUT = "IES"


@dataclass(frozen=True)
class Program:
    """A script (also a folder or zip with `__main__.py`, or `-` for stdin) or a module, and its arguments."""

    target: str
    module: bool = False
    arguments: tuple[str, ...] = ()

    def command(self, options: Sequence[str] = ()) -> list[str]:
        """The words that start it, with the interpreter's options given.

        Raises:
            TracksideError: for a script's name that Python would take for an option, and for an interpreter
                that is told not to look at the environment or not to set itself up, by which we come in.
        """
        if not self.module and self.target.startswith("-") and self.target != "-":
            raise TracksideError(
                "usage",
                f"a script's name is needed; Python would take {self.target!r} for an option",
                f"give it with its folder: ./{self.target}",
            )
        for letters, _ in _read(options):
            if shut := set(letters) & set(_SHUT):
                raise TracksideError(
                    "unsupported",
                    f"the interpreter was started with -{min(shut)}, and so ignores PYTHONPATH or "
                    "sitecustomize, by one of which a profile begins",
                    f"leave out -{min(shut)}",
                )
        return [sys.executable, *options, *(["-m"] if self.module else []), self.target, *self.arguments]


def interpreter_options(words: Sequence[str] | None = None) -> tuple[str, ...]:
    """The options that `python OPTIONS -m trackside …` was started with; the program gets the same.

    None where we were started in another way: those in the first line of an installed `trackside` are not the
    user's.

    Args:
        words: the command line, `sys.orig_argv` if left out.
    """
    options: list[str] = []
    for letters, read in _read((sys.orig_argv if words is None else words)[1:]):
        if letters.endswith("m"):
            return (*options, f"-{letters[:-1]}") if len(letters) > 1 else tuple(options)
        options += read
    return ()


def _read(words: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """The options that a line begins with: the letters of each, none for a long one, and its words."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        letters, count = "", 2 if word == _LONG_WITH_VALUE else 1
        for place, letter in enumerate(word[1:] if not word.startswith("--") else "", 2):
            letters += letter
            if letter in _WITH_VALUE + _LAST:
                count += place == len(word) and letter in _WITH_VALUE
                break
        yield letters, words[at : at + count]
        if letters[-1:] in tuple(_LAST):
            return
        at += count

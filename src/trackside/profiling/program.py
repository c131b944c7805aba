"""What to run, and the command line by which Python itself would run it.

The program is started as `python train.py a b` or `python -m package.module a b`, so `__main__`, `sys.argv`,
`sys.path`, tracebacks, exit codes and all else are Python's own. Our code comes in before its first line, through
`startup/sitecustomize.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from trackside.records.errors import TracksideError

__all__ = ["Program", "interpreter_options"]

# Options of `python` that have a value, as the rest of the word or as the next one; and those that end the
# options, what follows being the program.
_WITH_VALUE, _LAST = "WX", "cm"
_LONG_WITH_VALUE = "--check-hash-based-pycs"


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
        for option in options:
            if not option.startswith("--") and (shut := set(_letters(option)) & set("IES")):
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
    rest = list(sys.orig_argv if words is None else words)[1:]
    options: list[str] = []
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word.startswith("--"):
            options.append(word)
            if word == _LONG_WITH_VALUE and rest:
                options.append(rest.pop(0))
            continue
        letters = _letters(word)
        if letters[-1:] == "m":
            return (*options, f"-{letters[:-1]}") if letters != "m" else tuple(options)
        if letters[-1:] == "c":
            return ()
        options.append(word)
        if letters[-1:] in tuple(_WITH_VALUE) and len(word) == 1 + len(letters) and rest:
            options.append(rest.pop(0))
    return ()


def _letters(word: str) -> str:
    """The option letters of one word, up to the first whose value is the rest of it."""
    letters = ""
    for letter in word[1:]:
        letters += letter
        if letter in _WITH_VALUE + _LAST:
            break
    return letters

"""The one error Trackside raises on purpose: a kind from a closed set, what is wrong, and the way out."""

from typing import Any, Final, Literal, get_args

__all__ = ["ERROR_KINDS", "ErrorKind", "TracksideError", "encodable", "printable"]

ErrorKind = Literal[
    "usage",  # the command line or a call's arguments are wrong
    "not-found",  # a file, a run or a device that was named does not exist
    "workload",  # the user's file cannot be used as a workload
    "missing-dependency",  # an optional package or tool is needed and absent
    "unsupported",  # this machine cannot do it at all
    "device",  # the device is there but refuses: driver, memory, lost
    "busy",  # someone else holds the device
    "timeout",  # the work ran past its limit
    "store",  # run records cannot be read or written
    "interrupted",  # Ctrl-C or SIGTERM came before the end
    "internal",  # a defect of Trackside itself
]

ERROR_KINDS: Final[tuple[str, ...]] = get_args(ErrorKind)

# 2 = wrong use or tool failure, 3 = not possible here, 124 = what timeout(1) returns, 130 = what a shell
# makes of Ctrl-C. Never 1: that means a finding or a failed claim, and CI must be able to tell the two apart.
_EXIT_CODES: Final[dict[str, int]] = {
    "unsupported": 3,
    "device": 3,
    "timeout": 124,
    "interrupted": 130,
}
_EXIT_CODE_OTHERWISE: Final = 2


def printable(text: str) -> str:
    """Text from elsewhere as a terminal may show it: control characters and broken encodings as escapes."""
    whole: str = encodable(text)
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in whole)


def encodable(value: Any) -> Any:
    """A value of JSON in which all text is valid Unicode: broken encodings as escapes, all else as it is.

    Names of files and values of the environment may be any bytes; Python keeps them as lone surrogates, which
    have no form in UTF-8 and so none in JSON.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(name): encodable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [encodable(inner) for inner in value]
    return value


class TracksideError(Exception):
    """Something the caller can act on.

    Args:
        kind: one of `ERROR_KINDS`; programs branch on it.
        message: what was found, and what was needed.
        remedy: what to do about it, if possible a command to run.
    """

    def __init__(self, kind: ErrorKind, message: str, remedy: str) -> None:
        if kind not in ERROR_KINDS:
            raise ValueError(f"unknown error kind {kind!r}; the kinds are {', '.join(ERROR_KINDS)}")
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.remedy = remedy

    @property
    def exit_code(self) -> int:
        """What the process returns when this error ends it."""
        return _EXIT_CODES.get(self.kind, _EXIT_CODE_OTHERWISE)

    def as_json(self) -> dict[str, dict[str, str]]:
        """The document that `--json` prints in place of a result."""
        return {"error": {"kind": self.kind, "message": self.message, "remedy": self.remedy}}

    def __reduce__(self) -> tuple[type["TracksideError"], tuple[ErrorKind, str, str]]:
        # Exception's own pickling passes the message alone; workers send errors to the judge.
        return type(self), (self.kind, self.message, self.remedy)

"""Text from elsewhere (names, output and sources of profiled programs) as data for an assistant.

What a terminal or a model would obey unseen is taken out, secrets of the environment are blanked, and the
length is bounded.
"""

from __future__ import annotations

import functools
import os
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

__all__ = ["SHORT", "blanked", "cleaned", "plain"]

SHORT: Final = 240
"""Characters of a name or a sentence, unless more is asked for."""

# CSI, OSC (also unended) and two-character sequences of ECMA-48; a lone ESC goes with the other controls.
_ANSI: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]).*?(?:\x07|\x1b\\|\x9c|$)"
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
# Controls, formats (bidi overrides, zero-width, tags), surrogates, private use, line separators.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
# Invisible too, and a known way to carry text past a reader's eyes.
_SELECTORS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef\u115f\u1160\u3164\uffa0\u034f]")

_SECRET_NAME: Final = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASS(WORD|WD|PHRASE)?$|PASSWORD|_PWD$|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|_KEY$|^KEY_|AUTH(?!OR(?!I[ZS]))|"
    r"COOKIE|SESSION_ID|DSN$|_PAT$|DATABASE_URL|CONNECTION_STRING|WEBHOOK",
    re.IGNORECASE,
)
_COUNT_NAME: Final = re.compile(r"(MAX|MIN|NUM)_(\w+_)?TOKENS$", re.IGNORECASE)
# Who is let in by an address, as `PIP_INDEX_URL` or `HTTPS_PROXY` may say: a name and a password, or a token.
_IN_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^\s/?#]+)@")
# Shorter values are words of any text: blanking them would tell what they are.
_LEAST_SECRET: Final = 6
# Of a value of several lines, one line: shorter ones are brackets and words.
_LEAST_LINE: Final = 16
_BLANK: Final = "[secret]"


def plain(text: str, most: int = SHORT, lines: bool = False) -> str:
    """Text without hidden characters or secrets, cut to `most` characters.

    Args:
        text: anything, also broken encodings.
        most: characters; what is cut ends in an ellipsis.
        lines: whether it may have line breaks and tabs, as source and logs do.
    """
    # What is far behind the cut need not be looked at: a name may have megabytes.
    near = 4 * most + 1000
    whole = blanked(_visible(text[:near], lines), cut=len(text) > near)
    return whole if len(whole) <= most else whole[: most - 1] + "…"


def blanked(text: str, cut: bool = False) -> str:
    """Text without the values of variables of the environment whose names say that they are secrets.

    Args:
        text: visible already.
        cut: whether it goes on elsewhere, so that its end may be the beginning of a secret.
    """
    pattern, secrets = _secrets(tuple(sorted(os.environ.items())))
    if pattern is None:
        return text
    whole = pattern.sub(_BLANK, text)
    for secret in secrets if cut else ():
        at = whole.find(secret[:_LEAST_SECRET], max(0, len(whole) - len(secret)))
        if at >= 0 and secret.startswith(whole[at:]):
            return whole[:at] + _BLANK
    return whole


def cleaned(value: Any, most: int = SHORT, many_lines: frozenset[str] = frozenset(), name: str = "") -> Any:
    """A JSON value with every text in it made plain; keys too, since kernels and counters may be keys.

    Args:
        value: of JSON.
        most: characters of a text.
        many_lines: fields whose text may have line breaks; it may be as long as a whole answer.
        name: the field that holds the value.
    """
    if isinstance(value, str):
        return plain(value, 50 * most, lines=True) if name in many_lines else plain(value, most)
    if isinstance(value, Mapping):
        return {plain(str(key)): cleaned(inner, most, many_lines, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(inner, most, many_lines, name) for inner in value]
    return value


def _visible(text: str, lines: bool) -> str:
    kept = "\n\t" if lines else ""
    bare = _SELECTORS.sub("", _ANSI.sub("", text))
    return "".join(
        c if c in kept or unicodedata.category(c) not in _HIDDEN else " " if c in "\n\t\r" else ""
        for c in bare
    )


@functools.lru_cache(maxsize=2)
def _secrets(environment: tuple[tuple[str, str], ...]) -> tuple[re.Pattern[str] | None, tuple[str, ...]]:
    """What finds them, and the secrets themselves."""
    found: set[str] = set()
    for name, given in environment:
        value = given.strip()
        for admitted in _IN_ADDRESS.findall(value):
            found |= _of_address(admitted)
        # A path says where a secret lies, and is part of other paths.
        is_path = os.path.isabs(value) and os.path.exists(value)
        if not _SECRET_NAME.search(name) or _COUNT_NAME.search(name) or is_path:
            continue
        if len(value) >= _LEAST_SECRET:
            found |= {value, _visible(value, lines=False).strip()}
        # Of a key or a JSON document any line may be said, and line breaks may have become blanks.
        found |= {line.strip() for line in value.splitlines() if len(line.strip()) >= _LEAST_LINE}
    # The longest first, so that no end of a longer one is left standing.
    ordered = tuple(sorted(found - {""}, key=lambda value: (-len(value), value)))
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None, ordered


def _of_address(admitted: str) -> set[str]:
    """What is secret of that which stands before the @ of an address."""
    user, _, password = admitted.partition(":")
    found = {one for one in (password, unquote(password)) if len(one) >= _LEAST_SECRET}
    # `git` is no secret, and people's names are none; what is longer is a token in the place of one.
    found |= {user} if len(user) >= _LEAST_LINE else set()
    return found | ({f"{admitted}@"} if password else set())

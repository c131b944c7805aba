"""Names, output and sources of programs reach an assistant as visible data, and secrets do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from trackside.mcp_server.plain_text import cleaned, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07name", "name"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended", ""),
        ("a\x1bcb", "ab"),
        ("\u202egnp.exe\u2066", "gnp.exe"),
        ("zero\u200bwidth\u200d\ufeff", "zerowidth"),
        ("tags\U000e0049\U000e0067", "tags"),
        ("selectors\ufe0f\U000e0101", "selectors"),
        ("nul\x00bell\x07del\x7f", "nulbelldel"),
        ("line\nbreak\ttab\u2028", "line break tab"),
        ("private\ue000", "private"),
        ("broken \udcff", "broken "),
        ("漢字 é 🏎", "漢字 é 🏎"),
    ],
)
def test_what_is_hidden_or_steers_a_terminal_is_taken_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_source_keeps_its_lines_and_indentation() -> None:
    assert plain("def f():\n\treturn 1\r\n\x1b[2J", 100, lines=True) == "def f():\n\treturn 1 \n"


def test_long_text_is_cut_and_shows_it() -> None:
    assert plain("k" * 10_000_000, 50) == "k" * 49 + "…"


def test_keys_are_made_plain_too() -> None:
    assert cleaned({"a\x1b[31m": ["\u202eb", {"c\n": 1}]}) == {"a": ["b", {"c ": 1}]}


def test_secrets_of_the_environment_are_blanked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_API_KEY", "DB_PASSWORD", "DATABASE_URL"):
        monkeypatch.setenv(name, f"canary-{name}-value")
        assert plain(f"the program said canary-{name}-value.") == "the program said [secret]."


def test_a_secret_that_begins_another_leaves_no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "abcdefgh")
    monkeypatch.setenv("B_TOKEN", "abcdefghijkl")
    assert plain("abcdefghijkl") == "[secret]"


def test_a_secret_cut_in_two_by_hidden_characters_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "abcdefgh")
    assert plain("abcd\u200befgh") == "[secret]"


def test_a_secret_at_the_cut_is_not_left_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "abcdefghijklmnopqrstuvwxyz")
    assert "abcde" not in plain("k" * 40 + "abcdefghijklmnopqrstuvwxyz", 50)


def test_short_values_and_other_variables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "1")
    monkeypatch.setenv("HOME", "/home/someone")
    assert plain("1 of 3 in /home/someone") == "1 of 3 in /home/someone"


def test_a_secret_of_several_lines_is_blanked_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nw0BAQEFAASCBKcwggSj\nshort\n-----END KEY-----"
    monkeypatch.setenv("TLS_PRIVATE_KEY", key)
    for lines in (False, True):
        shown = plain(f"said: {key} short", lines=lines)
        assert "MIIE" not in shown
        assert "w0BA" not in shown
    assert plain("Traceback: w0BAQEFAASCBKcwggSj at short") == "Traceback: [secret] at short"
    monkeypatch.setenv("GOOGLE_CREDENTIALS", '{\n  "private_key_id": "0123456789abcdef",\n  "type": "x"\n}')
    assert "0123456789abcdef" not in plain('  "private_key_id": "0123456789abcdef",')


@pytest.mark.parametrize(
    "name",
    [
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "XAUTHORITY",
        "MAX_TOKENS",
        "TOKENIZERS_PARALLELISM",
        "TOKENIZER",
    ],
)
def test_names_that_only_resemble_those_of_secrets_are_none(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "someone")
    assert plain("/home/someone/train.py") == "/home/someone/train.py"


@pytest.mark.parametrize(
    "name",
    [
        *("AUTHORIZATION", "PROXY_AUTHORIZATION", "NPM_AUTH", "AUTH_HEADER", "TOKEN", "HF_TOKEN_2"),
        *("API_TOKENS", "MYSQL_PWD"),
    ],
)
def test_names_of_secrets_are_found_in_their_variants(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "abcdefgh")
    assert plain("abcdefgh") == "[secret]"


@pytest.mark.parametrize(
    ("address", "said", "shown"),
    [
        ("https://ci:hunter2secret@pypi.example/simple", "hunter2secret", "[secret]"),
        ("https://ci:p%40ssword@proxy.example:8080", "user ci, p@ssword", "user ci, [secret]"),
        ("redis://:abc@cache.example/0", "redis://:abc@cache.example/0", "redis://[secret]cache.example/0"),
        ("https://ghp_0123456789abcdef@github.com/x", "ghp_0123456789abcdef", "[secret]"),
        ("ssh://git@github.com/x", "git log; ssh://git@github.com/x", "git log; ssh://git@github.com/x"),
        ("https://pypi.example/simple", "https://pypi.example/simple", "https://pypi.example/simple"),
    ],
)
def test_who_is_let_in_by_an_address_is_a_secret_whatever_its_variable_is_called(
    monkeypatch: pytest.MonkeyPatch, address: str, said: str, shown: str
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", address)
    assert plain(said) == shown


def test_a_path_is_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a secret lies may be said: it is the value that may not."""
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path))
    assert plain(f"{tmp_path}/train.py") == f"{tmp_path}/train.py"


def test_a_long_secret_at_the_cut_of_a_long_text_is_not_left_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "abcdefghijklmnopqrstuvwxyz" * 100)
    for before in range(0, 300, 7):
        assert "abcde" not in plain("k" * before + "abcdefghijklmnopqrstuvwxyz" * 100, 240)

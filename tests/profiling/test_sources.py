"""Source files as they were: any bytes, any encoding, or gone."""

import json
import os
from pathlib import Path

from trackside.profiling.source_bytes import source_bytes
from trackside.profiling.sources import read_sources


def kept(*files: Path) -> dict[str, object]:
    """By way of JSON, as a capture leaves them."""
    told: dict[str, object] = json.loads(json.dumps(source_bytes(map(str, files))))
    return told


def test_a_file_is_read_in_the_encoding_that_it_names(tmp_path: Path) -> None:
    plain, latin = tmp_path / "plain.py", tmp_path / "latin.py"
    plain.write_bytes("x = 'grün'\r\ny = 1\n".encode())
    latin.write_bytes("# coding: latin-1\nx = 'grün'\n".encode("latin-1"))
    found = read_sources(kept(plain, latin))
    assert found.text(str(plain), 1) == "x = 'grün'"
    assert found.text(str(plain), 2) == "y = 1"
    assert found.text(str(latin), 2) == "x = 'grün'"
    assert found.text(str(latin), 99) == ""
    assert found.why_not == {}
    assert abs(found.changed_s[str(plain)] - os.stat(plain).st_mtime) < 1


def test_a_file_that_is_no_text_gone_or_too_long_is_named_with_the_reason(tmp_path: Path) -> None:
    broken, gone, long = tmp_path / "broken.py", tmp_path / "gone.py", tmp_path / "long.py"
    broken.write_bytes(b"x = '\xff\xfe'\n")
    long.write_bytes(b"#" * 1_000_001)
    found = read_sources(kept(broken, gone, long))
    assert found.lines == {}
    assert "not text" in found.why_not[str(broken)]
    assert "No such file" in found.why_not[str(gone)]
    assert "1,000,000 bytes" in found.why_not[str(long)]

"""Being told of an import, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

TELLS = """
import sys
sys.path.insert(0, {folder!r})
from trackside.profiling.on_import import when_imported
told = []
before = list(sys.meta_path)
when_imported("shop", lambda module: told.append((module.__name__, module.READY)))
"""
SHOP = "import shop.inner\nREADY = True\n"


def run(folder: Path, program: str) -> str:
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").write_text(SHOP)
    (folder / "shop" / "inner.py").write_text("import shop\nassert not hasattr(shop, 'READY')\n")
    done = subprocess.run(
        [sys.executable, "-c", TELLS.format(folder=str(folder)) + program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "how", ["import shop", "import shop.inner", "from shop import READY", "__import__('shop')"]
)
def test_it_is_told_once_after_the_whole_module_ran(tmp_path: Path, how: str) -> None:
    out = run(tmp_path, f"{how}\n{how}\nimport importlib, shop; importlib.reload(shop); print(told)")
    assert out.strip() == "[('shop', True)]"


def test_nothing_of_it_stays_behind(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        "import shop, importlib.machinery\n"
        "print(sys.meta_path == before, type(shop.__loader__).__name__, vars(shop.__loader__).keys())\n"
        "import inspect; print(inspect.getsource(shop) == open(shop.__file__).read())",
    )
    assert out.split("\n")[0].startswith("True SourceFileLoader")
    assert "exec_module" not in out
    assert out.split("\n")[1] == "True"


def test_a_module_that_was_imported_before_is_told_at_once(tmp_path: Path) -> None:
    out = run(tmp_path, "import json\nwhen_imported('json', lambda module: print(module.__name__))")
    assert out.strip() == "json"


def test_a_module_that_is_not_there_stays_missing_and_is_told_once_it_is(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        "when_imported('late', lambda module: print('told', module.__name__))\n"
        "try:\n    import late\nexcept ModuleNotFoundError as error:\n    print(error)\n"
        f"open({str(tmp_path / 'late.py')!r}, 'w').write('x = 1')\n"
        "import importlib; importlib.invalidate_caches()\nimport late; print(late.x)",
    )
    assert out.split("\n")[:3] == ["No module named 'late'", "told late", "1"]


def test_a_module_that_fails_raises_its_own_error_and_is_told_when_it_works(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        f"path = {str(tmp_path / 'flaky.py')!r}\nopen(path, 'w').write('raise ValueError(7)')\n"
        "when_imported('flaky', lambda module: print('told'))\n"
        "try:\n    import flaky\nexcept ValueError as error:\n    print('failed', error)\n"
        "import os; os.remove(path); open(path, 'w').write('y = 2222')\n"
        "import importlib; importlib.invalidate_caches(); sys.dont_write_bytecode = True\n"
        "import flaky; print(flaky.y)",
    )
    assert out.split("\n")[:3] == ["failed 7", "told", "2222"]


def test_several_that_wait_for_one_module_are_all_told_and_nothing_stays(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        "for name in 'ab':\n    when_imported('shop', lambda module, name=name: told.append(name))\n"
        "import shop\nprint(sorted(map(str, told)), sys.meta_path[-len(before):] == before, len(before))\n"
        "print(len(sys.meta_path), vars(shop.__loader__).keys())",
    )
    first, second = out.split("\n")[:2]
    assert first.startswith("[\"('shop', True)\", 'a', 'b'] True")
    assert second.split()[0] == first.split()[-1]
    assert "exec_module" not in second


@pytest.mark.parametrize("when", ["before", "meanwhile", "after a failure"])
def test_who_no_longer_wants_to_be_told_is_not(tmp_path: Path, when: str) -> None:
    (tmp_path / "quiet.py").write_text(
        {
            "before": "",
            "meanwhile": "import builtins; builtins.forget()",
            "after a failure": "import builtins; builtins.forget()\nif not builtins.again: raise ValueError",
        }[when]
    )
    out = run(
        tmp_path,
        "import builtins; builtins.again = False\n"
        "builtins.forget = when_imported('quiet', lambda module: print('told'))\n"
        + ("builtins.forget()\n" if when == "before" else "")
        + "try:\n    import quiet\nexcept ValueError:\n    builtins.again = True\n"
        "import quiet; print('imported', len(sys.meta_path) - len(before))",
    )
    # One more: the shop that every program here waits for.
    assert out.split("\n")[:1] == ["imported 1"]

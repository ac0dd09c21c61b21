"""Looks into what was built: `python -m tests.packages build/dist`. Fails with what is missing."""

import sys
import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import Path
from typing import Final

import perdure
from perdure.testing.stores.suite import SUBJECTS

ROOT: Final = Path(__file__).parents[1]
SRC: Final = ROOT / "src"
IN_SDIST: Final = (
    ".ci/run",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "bench/store.py",
    "chaos/interpose.c",
    "constraints.txt",
    "deploy/compose/compose.yaml",
    "docs/index.md",
    "examples/report_server.py",
    "fuzz/__main__.py",
    "mkdocs.yml",
    "pyproject.toml",
    "tests/conftest.py",
)


def sources() -> set[str]:
    """All that is to be installed: modules, SQL migrations, the mark of a typed package."""
    wanted = (path for path in SRC.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    found = {path.relative_to(SRC).as_posix() for path in wanted}
    assert "perdure/py.typed" in found
    assert any(name.endswith(".sql") for name in found)
    assert {f"perdure/testing/stores/{subject}.py" for subject in SUBJECTS} <= found
    return found


def check_wheel(path: Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        version = BytesParser().parsebytes(wheel.read(metadata))["Version"]
    assert version == perdure.__version__, f"{path.name} says that it is {version}"
    installed = {name for name in names if ".dist-info/" not in name}
    assert installed == sources(), f"{path.name}: {sorted(installed ^ sources())}"


def check_sdist(path: Path) -> None:
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    missing = {*IN_SDIST, *(f"src/{name}" for name in sources())} - names
    assert not missing, f"{path.name} lacks {sorted(missing)}"


def main(folder: Path) -> None:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    print(f"{wheel.name} and {sdist.name} hold what they have to")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

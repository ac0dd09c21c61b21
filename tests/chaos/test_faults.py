"""What the machine can't do is said and not left out in silence."""

from pathlib import Path

import pytest

from chaos import interposer
from chaos.faults import possible
from chaos.interposer import interposed
from chaos.plan import FLEET, Kind
from chaos.stores import sqlite
from chaos.stores.base import Site


def test_without_a_compiler_the_faults_that_need_one_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(program: str) -> None:
        """As `shutil.which` on a machine that has nothing."""

    monkeypatch.setattr(interposer.shutil, "which", nowhere)
    with interposed(tmp_path) as nothing, sqlite.ground(Site(tmp_path, nothing, mount=False, seats=1)) as ground:
        kinds, missing = possible(nothing, ground.troubles)
    assert set(missing) == {Kind.FORWARD, Kind.BACK, sqlite.SLOW, sqlite.BROKEN, sqlite.FULL}
    assert set(missing.values()) == {"there is no gcc"}
    assert set(kinds) == set(FLEET) - set(missing)

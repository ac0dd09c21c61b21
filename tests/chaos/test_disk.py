"""The store's disk can be filled, emptied and taken away, be it a real one or one that is made up."""

import errno
from pathlib import Path

import pytest

from chaos.disk import disk
from chaos.interposer import Interposer, interposed


def test_a_mounted_disk_is_full_when_told_to_and_gone_at_the_end(tmp_path: Path) -> None:
    with disk(tmp_path, "no interposer") as ground:
        if ground.missing is not None:
            pytest.skip("this user may not mount a file system")
        file = ground.folder / "file"
        file.write_bytes(bytes(1000))
        ground.fill()
        with pytest.raises(OSError, match="No space left") as refused:
            file.write_bytes(bytes(1 << 20))
        assert refused.value.errno == errno.ENOSPC
        ground.free()
        file.write_bytes(bytes(1 << 20))
        assert str(ground.folder) in Path("/proc/mounts").read_text()
    assert str(ground.folder) not in Path("/proc/mounts").read_text()


def test_without_a_disk_of_its_own_the_interposer_is_told(tmp_path: Path) -> None:
    with interposed(tmp_path) as interposer, disk(tmp_path, interposer, mount=False) as ground:
        assert isinstance(interposer, Interposer) == (ground.missing is None)
        if not isinstance(interposer, Interposer):
            assert ground.missing == interposer
            return
        ground.fill()
        assert interposer.read("disk_is_full") == 1
        ground.free()
        assert interposer.read("disk_is_full") == 0

"""A journal that is read while it is written."""

from pathlib import Path

from chaos.effects import Effect, Follower, Journal

START = Effect("start", "tsk_a", "r1", 1, 100)
END = Effect("end", "tsk_a", "r1", 1, 100)


def test_a_follower_reads_each_line_once(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "journal")
    assert list(follower.more()) == []
    journal = Journal(tmp_path / "journal")
    journal.write(START)
    assert list(follower.more()) == [START]
    journal.write(END)
    assert list(follower.more()) == [END]
    assert list(follower.more()) == []


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal(path).write(START)
    written = path.read_bytes()
    path.write_bytes(written[:10])
    follower = Follower(path)
    assert list(follower.more()) == []
    path.write_bytes(written)
    assert list(follower.more()) == [START]

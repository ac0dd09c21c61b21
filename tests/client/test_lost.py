"""Tasks that the server does not know, for now or for good: what is kept of them."""

from pathlib import Path

import pytest

from perdure.client import TaskLost, Tasks, Unavailable
from tests.client.spy import Spy, always
from tests.client.support import YES, Person, connected, text
from tests.client.test_manners import UPDATE, asks
from tests.client.test_repeating import without_tools
from tests.support import PATIENCE, eventually
from tests.wire.support import stage
from tests.wire.tools import Tools


async def test_a_task_that_was_lost_to_a_wrong_token_is_found_again_and_its_answer_is_sent(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.client.handle._PATIENCE", 0.3)
    spy, tasks, person = Spy(refuse={UPDATE: always(-32000, "full")}), Tasks(tmp_path / "journal.db"), Person()
    async with stage(tmp_path, tools.declare, server={"middleware": [spy]}) as up:
        async with connected(up.client.url, tasks, person) as client:
            handle = await tasks.start(client, "ask", idempotency_key="mine")
            await eventually(lambda: asks(handle), "it asks")
            with pytest.raises(Unavailable):
                await handle.answer({"form": YES})
            spy.refuse = {name: always(-32602, "Task not found") for name in ("tasks/get", UPDATE, "tasks/cancel")}
            with pytest.raises(TaskLost):
                await handle.result(PATIENCE)
            assert [each.id for each in (await tasks.resume_all(client)).lost] == [handle.id]
        tasks.journal.close()
        spy.refuse.clear()
        tasks = Tasks(tmp_path / "journal.db")
        async with connected(up.client.url, tasks, person) as client:
            (again,) = (await tasks.resume_all(client)).handles
            assert [record.status for record in tasks.journal.records()] == [None]
            assert text(await again.result(PATIENCE)) == "accept True"
    assert person.asked == []
    tasks.journal.close()


@pytest.mark.parametrize("marked", [True, False])
async def test_a_key_whose_task_is_no_more_is_free_again_where_the_server_honours_it(
    tmp_path: Path, tools: Tools, marked: bool
) -> None:
    spy, tasks = Spy(), Tasks()
    if not marked:
        spy.change["tools/list"] = without_tools
    async with (
        stage(tmp_path, tools.declare, server={"middleware": [spy]}) as up,
        connected(up.client.url, tasks) as client,
    ):
        first = await tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine")
        await first.result(PATIENCE)
        # As after a purge. What the server makes of the key is the server's: here it gives the first task again.
        spy.refuse["tasks/get"] = always(-32602, "Task not found")
        with pytest.raises(TaskLost):
            await first.status()
        again = await tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine")
        assert spy.came["tools/call"] == (2 if marked else 1)
        spy.refuse.clear()
        assert text(await again.result(PATIENCE)) == "Hello, you!"

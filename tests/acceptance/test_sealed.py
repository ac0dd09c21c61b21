"""A server's keys, from the first to the next, as its operators have it: real processes, with a task that goes on."""

import os
from pathlib import Path

from tests import copies
from tests.acceptance.support import REPORT_SERVER, attended, running, start, store_url
from tests.acceptance.test_report_server import APPROVED
from tests.acceptance.workers import PERDURE
from tests.store.sealed import NEW, OLD, Place

CANARY = "xyzzy-plugh"
QUESTION = "Approve the generated report outline?"


async def rekeyed(folder: Path, keys: str, *arguments: str) -> tuple[int, str]:
    """How `perdure rekey` ends, and what it says."""
    command = [PERDURE, "rekey", store_url(folder), *arguments]
    ended = await copies.ended(command, env={**os.environ, "PERDURE_KEYS": keys})
    return ended.code, ended.output + ended.errors


async def test_a_task_outlives_a_change_of_keys_and_its_store_never_tells_what_it_is_about(tmp_path: Path) -> None:
    place = Place(store_url(tmp_path))
    server = await start(REPORT_SERVER, tmp_path, env={"PERDURE_KEYS": OLD})
    async with attended(server) as (_, client):
        task_id = await client.start("generate_report", {"size": CANARY})
        await client.until(task_id, "input_required")
        stored = await place.everything()
        await server.kill()
    for text in (CANARY, QUESTION, "Outlook", "The outline is ready."):
        assert text.encode() not in stored + await place.everything()

    async with running(REPORT_SERVER, tmp_path, env={"PERDURE_KEYS": f"{OLD},{NEW}"}) as (server, client):
        code, said = await rekeyed(tmp_path, f"{NEW},{OLD}")
        assert code == 1
        assert f":{server.process.pid} (sealed under the key 'old')" in said, "it is quiet, and would seal under it"

    async with running(REPORT_SERVER, tmp_path, env={"PERDURE_KEYS": f"{NEW},{OLD}"}) as (_, client):
        code, said = await rekeyed(tmp_path, f"{NEW},{OLD}")
        assert (code, "and so does every worker on record" in said) == (0, True)
        await client.update(task_id, APPROVED)
        done = await client.until(task_id, "completed")

    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text(NEW)
    async with running(REPORT_SERVER, tmp_path, env={"PERDURE_KEYS_FILE": str(keys)}) as (_, client):
        assert await client.until(task_id, "completed") == done
        assert done["result"]["structuredContent"] == {"size": CANARY, "approved": True}
        code, said = await rekeyed(tmp_path, NEW, "--verify")
        assert (code, "all values that there are now open with these keys" in said) == (0, True)
    assert CANARY.encode() not in await place.everything()

    refused = await start(REPORT_SERVER, tmp_path)
    assert await refused.process.wait() == 1
    (line,) = refused.output.read_text().splitlines()
    assert "has tasks that were sealed under the key 'new', and it is not among the keys here" in line

    # The key is lost: its tasks are, and nothing else.
    async with running(REPORT_SERVER, tmp_path, env={"PERDURE_KEYS": f"{OLD},new:lost"}) as (_, client):
        again = await client.start("generate_report", {"size": CANARY})
        await client.until(again, "input_required")
        await client.update(again, APPROVED)
        assert (await client.until(again, "completed"))["result"]["structuredContent"]["approved"] is True


async def test_clear_text_is_gone_from_a_file_that_is_in_use_once_it_was_rekeyed(tmp_path: Path) -> None:
    place = Place(store_url(tmp_path))
    async with running(REPORT_SERVER, tmp_path) as (_, client):
        task_id = await client.start("generate_report", {"size": CANARY})
        await client.until(task_id, "input_required")
    assert CANARY.encode() in await place.everything()
    async with running(REPORT_SERVER, tmp_path, env={"PERDURE_KEYS": NEW}) as (_, client):
        code, said = await rekeyed(tmp_path, NEW)
        assert (code, "note: " in said) == (0, False)
        assert CANARY.encode() not in await place.everything()
        await client.until(task_id, "input_required")

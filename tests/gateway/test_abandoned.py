"""A task that nobody can be told of, since its route could not be written."""

from perdure.domain.errors import StoreUnavailable
from perdure.domain.model import Owner
from perdure.domain.names import IDEMPOTENCY_KEY
from perdure.domain.routing import Route
from perdure.store.memory import MemoryRoutes
from tests.gateway.raw_backend import liar
from tests.gateway.support import fronting
from tests.gateway.test_lies import CALL, HANDLE, Bad, ask, said
from tests.support import eventually
from tests.wire.envelopes import meta


class Away(MemoryRoutes):
    """A table in which no route can be laid for as long as it is `away`."""

    away = True

    async def lay(self, owner: Owner, backend: str, backend_task_id: str, ttl_ms: int | None, gateway_id: str) -> Route:
        if self.away:
            raise StoreUnavailable
        return await super().lay(owner, backend, backend_task_id, ttl_ms, gateway_id)


async def test_a_handle_without_a_route_does_not_go_out_and_its_task_is_cancelled() -> None:
    backend = Bad(said(HANDLE))
    async with liar(backend.answer) as up, fronting({"bad": up.url}, routes=Away()) as front:
        reply = await ask(front)
        assert (reply.status, reply.code, reply.error["data"]["gateway"]) == (503, -32000, True)
        assert reply.error["data"]["retryAfterMs"] > 0
        assert b"theirs" not in reply.raw
        await eventually(lambda: len(backend.asked) == 2, "the task was not cancelled")
    assert backend.asked[1]["method"] == "tasks/cancel"
    assert backend.asked[1]["params"]["taskId"] == "theirs-0001"


async def test_one_that_may_be_asked_for_again_under_its_key_is_not_cancelled_and_is_found_then() -> None:
    routes, backend = Away(), Bad(said(HANDLE), said(HANDLE))
    keyed = {**CALL, "_meta": meta() | {IDEMPOTENCY_KEY: "k"}}
    async with liar(backend.answer) as up, fronting({"bad": up.url}, routes=routes) as front:
        assert (await ask(front, params=keyed)).status == 503
        routes.away = False
        assert (await ask(front, params=keyed)).result["taskId"].startswith("tsk_")
    assert [message["method"] for message in backend.asked] == ["tools/call", "tools/call"]

"""What `answer` does about an answer that is on record already, and about one that nobody asked for yet."""

from contextlib import aclosing

from perdure.client import TaskHandle, Tasks
from tests.client.support import ADA, YES, Person, connected, text
from tests.wire.support import Stage


async def asks(handle: TaskHandle) -> None:
    """Wait until the task has a question open."""
    async with aclosing(handle.updates()) as updates:
        async for snapshot in updates:
            if snapshot.questions:
                return


async def test_an_answer_that_was_recorded_and_never_sent_is_sent(scene: Stage) -> None:
    """As after a crash between the two: the first answer counts, and the task must not wait for it."""
    tasks = Tasks()
    async with connected(scene.client.url, tasks, lambda *_: None) as client:
        handle = await tasks.start(client, "ask")
        await asks(handle)
        (record,) = tasks.journal.records()
        assert tasks.journal.answer(record, "form", {"action": "decline"})
        await handle.answer({"form": YES})
        assert text(await handle.result(30, ask=False)) == "decline None"


async def test_an_answer_to_what_is_not_asked_yet_is_dropped_and_the_question_is_asked(scene: Stage) -> None:
    tasks, person = Tasks(), Person()
    async with connected(scene.client.url, tasks, person) as client:
        handle = await tasks.start(client, "ask_twice")
        assert await handle.answer({"entry": ADA}) == frozenset()
        await handle.result(30)
    assert person.asked == ["All right?", "Who?"]


async def test_answers_to_open_questions_say_which_those_were(scene: Stage) -> None:
    tasks = Tasks()
    async with connected(scene.client.url, tasks, lambda *_: None) as client:
        handle = await tasks.start(client, "ask_two")
        await asks(handle)
        assert await handle.answer({"form": YES, "nothing": YES}) == {"form"}
        assert await handle.answer({"form": YES}) == frozenset()
        assert await handle.answer({"entry": ADA}) == {"entry"}
        await handle.result(30, ask=False)

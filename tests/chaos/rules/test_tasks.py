"""Tasks that are lost, made up, ended twice, or ended as their tools don't."""

from dataclasses import replace
from math import inf

from chaos.evidence import Change, Row, Store
from tests.chaos.support import (
    CHANGES,
    EFFECTS,
    EXCHANGES,
    INPUTS,
    LAWFUL,
    ROW,
    TASK,
    asking,
    broken,
    call,
    cancel,
    completed,
    done,
    effect,
    get,
    rows,
    stored,
    task,
    told,
)

# -- no accepted task is lost ------------------------------------------------------------------------------------------

LOST = "no accepted task is lost"


def test_a_task_that_does_not_end_is_lost() -> None:
    assert "it did not end" in told(instead=EXCHANGES[:-1])[LOST][0]


def test_a_task_that_the_store_does_not_hold_is_lost() -> None:
    assert "the store does not hold it" in broken(replace(LAWFUL, store=Store()))[LOST][0]


def test_a_task_that_a_server_does_not_know_is_lost() -> None:
    error = {"code": -32602, "message": "Task not found"}
    assert "server-1 does not know it" in told(get(6, server="server-1", error=error))[LOST][0]


# -- no task is made up ------------------------------------------------------------------------------------------------

MADE_UP = "no task is made up"
OTHER = Row("tsk_b", "compute", "compute-2", "cancelled", 1, 1)


def test_a_task_that_nobody_asked_for_is_made_up() -> None:
    assert "nobody asked for this task" in rows(ROW, OTHER)[MADE_UP][0]


def test_a_task_of_a_call_that_got_no_answer_is_not_made_up() -> None:
    exchanges = (*EXCHANGES, call(label=OTHER.label, kind="compute", result=None))
    store = Store({TASK: ROW, OTHER.id: OTHER}, INPUTS)
    assert MADE_UP not in broken(replace(LAWFUL, exchanges=exchanges, store=store))


def test_one_call_is_one_task() -> None:
    twin = replace(ROW, id="tsk_b")
    assert "one call became two tasks" in rows(ROW, twin)[MADE_UP][0]


KEYED = "a key is one task"


def test_a_key_with_two_tasks_is_found() -> None:
    first, second = call(key="k"), call(key="k", result=task() | {"taskId": "tsk_b"})
    assert "one key, two tasks: tsk_a, tsk_b" in told(first, second, instead=EXCHANGES[1:])[KEYED][0]


def test_a_call_may_be_made_again_under_its_key() -> None:
    unheard = call(received=inf, result=None, key="k")
    assert not told(unheard, call(key="k"), call(9, key="k", result=task("completed", 4)), instead=EXCHANGES[1:])


def test_a_task_of_a_lost_handle_that_hangs_is_found() -> None:
    hangs = replace(OTHER, status="working", runnable=True)
    exchanges = (*EXCHANGES, call(label=OTHER.label, kind="compute", result=None))
    store = Store({TASK: ROW, OTHER.id: hangs}, INPUTS)
    assert set(broken(replace(LAWFUL, exchanges=exchanges, store=store))) == {"tasks of lost handles settle"}


# -- one completion ----------------------------------------------------------------------------------------------------

ONCE = "a task is completed once"


def test_two_completions_are_found() -> None:
    again = (*CHANGES[:2], Change("working", "completed", 3, 4, 3, 4), Change("working", "completed", 4, 5, 4, 4))
    assert "ended 2 times" in stored(changes=again, version=5)[ONCE][0]


def test_an_end_without_a_change_that_brought_it_is_found() -> None:
    assert "ended 0 times" in stored(changes=CHANGES[:2], version=3)[ONCE][0]


def test_a_result_of_a_run_that_did_not_end_is_found() -> None:
    unended = tuple(each for each in EFFECTS if each.event != "end")
    assert "which did not come to its end" in done(before=unended)[ONCE][0]


def test_the_error_of_a_run_that_did_not_end_is_found_too() -> None:
    error = {"code": -31999, "message": "r9", "data": None}
    changes = (Change("working", "failed", 1, 2, 1, 2),)
    found = stored(kind="mcp_error", status="failed", result=None, error=error, changes=changes, version=2)
    assert "names the run r9" in found[ONCE][0]


def test_a_result_of_a_ghost_is_found() -> None:
    successor = effect("start", "r3", attempt=2)
    assert "a ghost: r3 had begun before" in done(before=(*EFFECTS[:-1], successor, EFFECTS[-1]))[ONCE][0]
    assert not done(successor)


# -- terminal statuses stay --------------------------------------------------------------------------------------------

STAYS = "a terminal status stays"


def test_a_terminal_status_that_changes_is_found() -> None:
    assert "two ends" in told(get(6, task("cancelled", 4)), cancel(1.5))[STAYS][0]


def test_a_result_that_changes_is_found() -> None:
    assert "two ends" in told(get(6, completed(more=1)))[STAYS][0]


def test_a_task_that_comes_back_to_life_is_found() -> None:
    assert "and then working" in told(get(6, task(second=4)))[STAYS][0]


def test_a_read_that_was_under_way_at_the_end_may_show_what_was_before() -> None:
    assert not told(get(4.5, task(second=3), received=9))


def test_a_write_after_the_end_is_found_in_the_store() -> None:
    more = (*CHANGES, Change("completed", "completed", 4, 5, 4, 4))
    assert "was written to" in stored(changes=more, version=5)[STAYS][0]


# -- time --------------------------------------------------------------------------------------------------------------

TIME = "time does not run backwards"


def test_a_later_read_that_shows_an_earlier_update_is_found() -> None:
    assert "lastUpdatedAt went from" in told(get(4.6, task(second=1)), instead=EXCHANGES)[TIME][0]


def test_two_reads_at_once_may_arrive_in_either_order() -> None:
    assert not told(get(3.4, asking(), received=4.9))


def test_versions_with_a_gap_are_found() -> None:
    assert "the versions became [1, 2, 3, 4], and were then [1, 2, 3, 5]" in stored(version=5)[TIME][0]
    unnoted = (CHANGES[0], CHANGES[2])
    assert "the versions became [1, 2, 4], and were then [1, 3, 4]" in stored(changes=unnoted)[TIME][0]


def test_a_version_that_does_not_grow_is_found() -> None:
    again = (CHANGES[0], Change("input_required", "working", 2, 2, 2, 3), Change("working", "completed", 2, 4, 3, 4))
    assert TIME in stored(changes=again)


def test_two_changes_may_be_written_as_one() -> None:
    both = (CHANGES[0], Change("input_required", "working", 2, 4, 2, 3), Change("working", "completed", 4, 5, 3, 4))
    assert not stored(changes=both, version=5)


def test_an_update_time_that_goes_back_in_the_store_is_found() -> None:
    back = (*CHANGES[:2], Change("working", "completed", 3, 4, 3, 2))
    assert "went back in the store" in stored(changes=back)[TIME][0]


# -- how a task ends ---------------------------------------------------------------------------------------------------

ENDS = "a task ends as its tool does"


def ended(shown: dict[str, object], *more: object) -> list[str]:
    exchanges = (*EXCHANGES[:-1], get(5, shown))
    return list(broken(replace(LAWFUL, exchanges=exchanges)).get(ENDS, []))


def test_a_tool_that_succeeds_and_a_task_that_failed_are_found() -> None:
    failed = task("failed", 4, error={"code": -32603, "message": "Internal error"}, statusMessage="Internal error")
    assert "it ended as failed" in ended(failed)[0]
    wrong = completed()
    wrong["result"]["isError"] = True
    assert "it ended as error" in ended(wrong)[0]


def test_only_a_tool_with_a_ttl_may_expire() -> None:
    expired = task("failed", 4, error={"code": -32603, "message": "The task expired: its ttl ran out"})
    assert "it ended as expired" in ended(expired)[0]


def test_a_cancellation_that_nobody_asked_for_is_found() -> None:
    assert "nobody asked for that" in ended(task("cancelled", 4))[0]
    assert ENDS not in told(cancel(4.2), get(5, task("cancelled", 4)), instead=EXCHANGES[:-1])


def test_the_result_of_another_task_is_found() -> None:
    assert "another task's result" in ended(completed(label="other"))[0]

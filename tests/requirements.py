"""What the wire has to do, sentence by sentence, and the tests that show it; `test_requirements.py` binds them.

Two texts are mapped: our contract, by the number of its section, and the specification of the extension
(modelcontextprotocol/ext-tasks at e434597, `specification/draft/tasks.md`), by its heading and in its words where it
says MUST or SHOULD. MAY is listed only where we use it. What the wire does beyond both is listed by the section of the
design. A sentence that waits for a later room names that room in `later`: "limits", "hosts" (what other people's
programs owe).
"""

from dataclasses import dataclass, field
from typing import Final

__all__ = ["REQUIREMENTS", "ROOMS", "Requirement"]

ROOMS: Final = frozenset({"limits", "hosts"})


@dataclass(frozen=True, slots=True)
class Requirement:
    """One sentence. `tests` are `file.py::function` below `tests/`; `later` names the room that it waits for."""

    source: str
    text: str
    tests: tuple[str, ...] = field(default=())
    later: str | None = None


def _must(source: str, text: str, *tests: str, later: str | None = None) -> Requirement:
    return Requirement(source, text, tests, later)


_NEGOTIATION = (
    _must(
        "contract 1",
        "server/discover: supportedVersions, the extension's settings exactly empty, ttlMs, cacheScope, no "
        "capabilities.tasks",
        "wire/test_negotiation.py::test_discovery_offers_the_extension_with_exactly_empty_settings",
        "wire/test_lifespans.py::test_options_of_the_server_are_the_sdks_and_the_users_extensions_stay",
        "wire/test_stdio.py::test_the_whole_life_of_a_task",
    ),
    _must(
        "contract 1",
        "tools/list is the same bytes on every call and every replica, in order, with public hints and object "
        "inputSchemas",
        "wire/test_negotiation.py::test_the_list_of_tools_is_the_same_bytes_on_every_call_and_every_replica",
        "wire/test_negotiation.py::test_tools_are_listed_in_the_order_of_declaration_with_object_schemas",
        "wire/test_negotiation.py::test_the_context_of_a_tool_is_no_argument_that_clients_see",
    ),
    _must(
        "contract 1",
        "The extension is declared per request, and nothing carries over from an earlier one",
        "wire/test_negotiation.py::test_nothing_carries_over_from_an_earlier_request",
        "wire/test_negotiation.py::test_settings_inside_the_declaration_do_not_matter",
        "wire/test_bad_input.py::test_capabilities_of_any_shape",
    ),
    _must(
        "contract 1",
        "Undeclared: tasks/get|update|cancel answer -32021 with data.requiredCapabilities, HTTP 400, before any look- "
        "up",
        "wire/test_negotiation.py::test_task_methods_need_the_extension_declared_before_anything_is_looked_up",
        "wire/test_negotiation.py::test_the_declaration_is_judged_before_the_parameters_are",
        "wire/test_stdio.py::test_the_extension_must_be_declared_on_each_request",
    ),
    _must(
        "contract 1",
        "Undeclared: subscriptions/listen with taskIds answers -32021",
        "wire/test_negotiation.py::test_listening_for_tasks_needs_the_extension_declared",
        "wire/test_negotiation.py::test_listening_for_other_things_needs_no_extension",
    ),
    _must(
        "contract 1",
        "Unsupported protocol version: -32022 with data.supported and data.requested",
        "wire/test_negotiation.py::test_an_unsupported_version_is_named_together_with_the_supported_ones",
    ),
    _must(
        "contract 1",
        "Missing or non-string version: -32602 (over HTTP a non-string never equals its header, -32020)",
        "wire/test_negotiation.py::test_a_missing_part_of_the_envelope_is_invalid_params",
        "wire/test_negotiation.py::test_a_meta_that_is_no_object_is_invalid_params",
        "wire/test_negotiation.py::test_a_version_that_is_no_string_never_matches_its_header",
        "wire/test_stdio.py::test_a_version_that_is_no_string_or_missing_is_invalid_params",
    ),
    _must(
        "contract 1",
        "An envelope without id is a notification: never a response, HTTP 202 with an empty body",
        "wire/test_negotiation.py::test_an_envelope_without_id_is_never_answered",
        "wire/test_stdio.py::test_an_envelope_without_id_is_never_answered",
    ),
    _must(
        "contract 1",
        "tasks/status, tasks/result, tasks/list: -32601, HTTP 404",
        "wire/test_negotiation.py::test_methods_of_other_revisions_do_not_exist",
        "wire/test_bad_input.py::test_methods_of_any_kind",
    ),
    _must(
        "contract 1",
        "A legacy task parameter on tools/call is ignored",
        "wire/test_negotiation.py::test_a_legacy_task_parameter_neither_makes_a_task_nor_changes_one",
    ),
    _must(
        "contract 10",
        "Without the adapter, handshake-era connections know no tasks: -32601, no capability, tools run inside the "
        "request",
        "wire/test_handshake.py::test_the_task_methods_do_not_exist",
        "wire/test_handshake.py::test_a_tool_runs_inside_the_request_and_its_result_is_of_that_era",
        "wire/test_handshake.py::test_declaring_the_extension_or_a_task_makes_no_difference",
        "wire/test_handshake.py::test_a_tool_that_must_be_a_task_is_refused",
        "wire/test_stdio.py::test_a_handshake_connection_knows_no_tasks",
        "wire/test_legacy_servers.py::test_the_adapter_is_off_unless_asked_for_and_the_log_says_once_who_wants_it",
    ),
    _must(
        "contract 10",
        "With the adapter, connections of 2025-11-25 are told of tasks, and no others are",
        "wire/test_legacy.py::test_the_server_and_its_tools_say_that_they_take_tasks",
        "wire/test_legacy.py::test_the_era_after_it_sees_nothing_of_it",
        "wire/test_legacy.py::test_an_earlier_revision_sees_nothing_of_it",
        "wire/test_legacy_servers.py::test_before_the_handshake_there_are_no_tasks",
    ),
    _must(
        "contract 10",
        "A call with params.task becomes a task; tasks/get, tasks/result and tasks/cancel are of that revision",
        "wire/test_legacy.py::test_a_task_is_made_polled_and_its_result_fetched",
        "wire/test_legacy.py::test_what_can_be_no_task_and_what_must_be_one_are_told",
        "wire/test_legacy.py::test_the_result_is_waited_for",
        "wire/test_legacy.py::test_a_tool_error_is_a_failed_task_whose_result_says_why",
        "wire/test_legacy.py::test_a_protocol_error_is_the_answer_to_the_result",
        "wire/test_legacy.py::test_a_task_is_cancelled_once",
        "wire/test_legacy.py::test_a_task_that_is_over_is_not_cancelled",
        "wire/test_legacy.py::test_a_cancelled_task_stays_cancelled_though_its_code_goes_on",
        "wire/test_legacy_servers.py::test_over_pipes_a_task_outlives_both_the_client_and_the_server",
    ),
    _must(
        "contract 10",
        "What a task asks is put to the client that waits for its result, and changes are told to it",
        "wire/test_legacy.py::test_a_question_is_put_to_the_client_that_waits_for_the_result",
        "wire/test_legacy.py::test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open",
        "wire/test_legacy.py::test_a_question_that_was_answered_elsewhere_is_taken_back",
        "wire/test_legacy.py::test_a_client_that_waits_is_told_of_changes",
    ),
    _must(
        "contract 10",
        "Over the same store and the same ownership: each era sees the other's tasks, and tasks/list one's own only",
        "wire/test_legacy.py::test_each_era_sees_the_tasks_of_the_other",
        "wire/test_legacy.py::test_foreign_unknown_and_malformed_ids_are_refused",
        "wire/test_legacy.py::test_only_ones_own_tasks_are_listed_all_of_them_and_the_newest_first",
        "wire/test_legacy_servers.py::test_without_authentication_nobodys_tasks_are_listed_and_everything_else_works",
        "wire/test_legacy_servers.py::test_the_next_server_goes_on_with_the_tasks_of_the_last",
    ),
    _must(
        "Capability Negotiation",
        "A server MUST NOT return CreateTaskResult to a client that did not include the extension capability on its "
        "request, "
        "regardless of prior declarations.",
        "wire/test_creation.py::test_an_undeclaring_client_never_gets_a_task",
        "wire/test_negotiation.py::test_nothing_carries_over_from_an_earlier_request",
    ),
    _must(
        "Capability Negotiation",
        "If a server is unable to service a request without returning CreateTaskResult, the server MUST return -32021, "
        "indicating the required extension",
        "wire/test_creation.py::test_a_tool_that_must_be_a_task_refuses_an_undeclaring_client_and_stores_nothing",
        "wire/test_inline.py::test_past_the_deadline_the_client_hears_what_it_lacks_and_the_work_is_cancelled",
    ),
    _must(
        "Capability Negotiation",
        "A client MUST be prepared to handle either CallToolResult or CreateTaskResult; CreateTaskResult for an "
        "unsupported "
        "request type MUST be interpreted as an invalid response",
        "client/test_results.py::test_call_tool_just_returns_the_result",
        "client/test_results.py::test_a_call_that_the_server_answers_at_once_is_a_handle_that_is_settled",
        "client/test_manners.py::test_a_task_in_answer_to_anything_but_a_tool_call_is_no_valid_answer",
    ),
    _must(
        "Supported Methods",
        "Implementations SHOULD be designed to accommodate additional request types",
        "domain/test_lifecycle.py::test_no_arrow_changes_what_a_task_is_about",
    ),
    _must(
        "Polymorphic Results",
        "Servers MUST set resultType to task on a CreateTaskResult, and MUST NOT on any other result",
        "wire/test_creation.py::test_a_handle_is_flat_and_working",
        "wire/test_checker.py::test_the_head_of_a_task_is_strict",
        "wire/test_checker.py::test_an_acknowledgement_is_empty",
    ),
)

_CREATION = (
    _must(
        "contract 2",
        "The server decides per call",
        "wire/test_creation.py::test_the_server_decides_call_by_call",
        "wire/test_creation.py::test_a_plain_tool_is_never_a_task",
        "tools/test_tools.py::test_when_sees_the_validated_arguments_that_it_names",
        "tools/test_tools.py::test_mode_task_and_when_together",
        "wire/test_inline.py::test_past_the_deadline_a_client_that_knows_tasks_gets_the_handle",
    ),
    _must(
        "contract 2",
        "CreateTaskResult is flat: never task, result, error, inputRequests, requestState",
        "wire/test_creation.py::test_a_handle_is_flat_and_working",
        "wire/test_checker.py::test_a_handle_has_nothing_that_a_later_status_brings",
    ),
    _must(
        "contract 2",
        "ttlMs always present, null meaning unlimited; results leave as dictionaries, so that null is not lost",
        "wire/test_creation.py::test_an_unlimited_ttl_is_null_and_there",
        "wire/test_creation.py::test_ttl_and_interval_are_those_of_the_tool",
        "wire/test_checker.py::test_nothing_may_be_missing_from_the_head",
    ),
    _must(
        "contract 2",
        "Never to a client that did not declare; a tool that must be a task answers -32021 then",
        "wire/test_creation.py::test_an_undeclaring_client_never_gets_a_task",
        "wire/test_creation.py::test_a_tool_that_must_be_a_task_refuses_an_undeclaring_client_and_stores_nothing",
        "wire/test_prepare.py::test_a_client_that_can_not_be_served_is_refused_before_it_is_asked",
    ),
    _must(
        "contract 2",
        "An auto tool for such a client: a durable task all the same, waited for inside the request, with input as "
        "MRTR",
        "wire/test_inline.py::test_the_result_is_an_ordinary_one",
        "wire/test_inline.py::test_a_question_goes_out_as_a_round_trip_and_the_retry_carries_on_with_the_same_task",
        "wire/test_inline.py::test_several_rounds_and_partial_answers",
        "wire/test_inline.py::test_the_handle_is_sealed",
        "wire/test_inline.py::test_when_the_client_hangs_up_the_work_is_cancelled",
        "wire/test_inline.py::test_a_client_that_hangs_up_during_the_creation_leaves_no_work_behind",
        "wire/test_inline.py::test_a_call_inside_the_request_lives_an_hour_at_most_and_its_handle_says_so",
        "wire/test_inline.py::test_a_request_that_asked_for_progress_is_shown_the_messages_of_its_task",
        "wire/test_stdio.py::test_calls_without_the_extension_run_inside_the_request",
    ),
    _must(
        "contract 2",
        "Arguments that fail validation come back at once as a tool error, and nothing is stored",
        "tools/test_tools.py::test_arguments_that_do_not_fit_are_an_immediate_tool_error_and_nothing_is_stored",
        "tools/test_tools.py::test_arguments_that_are_no_object_are_invalid_params",
        "wire/test_prepare.py::test_arguments_are_validated_before_anything_is_asked",
    ),
    _must(
        "contract 2",
        "Tools are the SDK's: argument validation, output schemas, structured content, contexts by annotation",
        "tools/test_tools.py::test_a_tool_is_listed_and_answers_as_the_same_tool_of_the_sdk_would",
        "tools/test_tools.py::test_a_plain_function_has_the_same_verbs_and_they_block",
        "tools/test_tools.py::test_a_context_of_the_wrong_kind_is_refused_at_declaration",
        "tools/test_tools.py::test_what_belongs_to_a_request_is_refused_at_declaration",
        "wire/test_lifespans.py::test_a_server_that_is_wired_by_hand_is_no_different",
        "wire/test_lifespans.py::test_a_server_without_the_middleware_is_refused_with_what_to_do",
    ),
    _must(
        "Task Creation",
        "A server MUST NOT return CreateTaskResult until the task is durably created, that is, until a tasks/get would "
        "resolve; in eventually-consistent environments it MUST wait for consistency",
        "wire/test_creation.py::test_the_task_lies_on_disk_before_its_handle_leaves",
        "wire/test_creation.py::test_another_replica_resolves_the_handle_at_once",
        "acceptance/test_two_servers.py::test_the_handle_of_one_server_resolves_on_the_other_at_once",
    ),
    _must(
        "Task Creation",
        "Server implementations that use multi round-trip requests SHOULD resolve all MRTR exchanges before "
        "responding with a "
        "CreateTaskResult",
        "wire/test_prepare.py::test_nothing_is_stored_until_the_rounds_are_over",
        "wire/test_prepare.py::test_input_before_and_input_during_the_task",
        "tools/test_tools.py::test_a_round_trip_that_comes_out_unannounced_is_a_tool_error",
    ),
)

_GET = (
    _must(
        "contract 3",
        "resultType complete always, and only the fields of the status",
        "wire/test_get.py::test_a_working_task_is_complete_as_a_response",
        "wire/test_checker.py::test_no_status_may_lack_its_own_fields_or_have_those_of_another",
    ),
    _must(
        "contract 3",
        "The nested result is a full CallToolResult with resultType complete and its own server identity, never "
        "related-task",
        "wire/test_get.py::test_a_completed_task_holds_a_full_tool_result",
        "wire/test_get.py::test_the_nested_identity_is_the_whole_identity_of_the_server",
        "wire/test_get.py::test_meta_of_a_tools_own_is_kept_but_for_what_is_not_its_to_say",
        "wire/test_checker.py::test_the_nested_result_is_strict",
    ),
    _must(
        "contract 3",
        "lastUpdatedAt moves only when the task changes",
        "wire/test_get.py::test_looking_moves_nothing",
        "wire/test_get.py::test_a_change_moves_the_time_of_the_last_update_and_nothing_else_does",
        "wire/test_checker.py::test_a_history_tells_what_no_single_response_does",
    ),
    _must(
        "contract 3",
        "Timestamps: UTC, RFC 3339, milliseconds, Z",
        "wire/test_checker.py::test_the_head_of_a_task_is_strict",
        "wire/test_creation.py::test_times_are_of_this_moment",
    ),
    _must(
        "contract 3",
        "Expiry and exhausted attempts synthesize a JSON-RPC error (-32603) that says so",
        "wire/test_get.py::test_a_task_whose_workers_all_died_fails_and_says_so",
        "wire/test_expiry.py::test_a_running_task_is_stopped_and_fails_when_its_ttl_has_run_out",
    ),
    _must(
        "contract 3",
        "Whatever a tool raises or returns has a defined outcome, and the server goes on",
        "tools/test_tools.py::test_whatever_a_tool_raises_the_task_ends_and_the_server_goes_on",
        "tools/test_tools.py::test_a_result_without_json_form_is_a_tool_error_or_json_and_the_server_goes_on",
        "tools/test_tools.py::test_a_protocol_error_whose_data_has_no_json_form_still_fails_the_task",
    ),
    _must(
        "Response (tasks/get)",
        "working: the server MUST return a Task object with status working",
        "wire/test_get.py::test_a_working_task_is_complete_as_a_response",
    ),
    _must(
        "Response (tasks/get)",
        "input_required: MUST return inputRequests, which MUST contain all outstanding requests",
        "wire/test_get.py::test_all_outstanding_questions_are_shown_each_time",
        "tools/test_questions.py::test_all_kinds_at_once",
    ),
    _must(
        "Response (tasks/get)",
        "completed: MUST return a result field containing the final result",
        "wire/test_get.py::test_the_nested_result_is_what_the_call_itself_would_have_returned",
    ),
    _must(
        "Response (tasks/get)",
        "cancelled: MUST return a Task object with status cancelled",
        "wire/test_cancel.py::test_a_running_task_is_told_and_ends_as_cancelled",
    ),
    _must(
        "Response (tasks/get)",
        "failed: MUST return the error that occurred during execution",
        "wire/test_get.py::test_a_protocol_error_is_a_failed_task_with_that_error",
    ),
    _must(
        "Response (tasks/get)",
        "The resultType field MUST be set to complete",
        "wire/test_get.py::test_a_working_task_is_complete_as_a_response",
    ),
    _must(
        "Task Execution Errors",
        "The tasks/get response SHOULD include a statusMessage about the failure, and MUST include the error field",
        "wire/test_get.py::test_a_protocol_error_is_a_failed_task_with_that_error",
        "tools/test_tools.py::test_a_protocol_error_of_any_code_fails_the_task_with_it",
    ),
    _must(
        "Task Execution Errors",
        "failed MUST NOT be used for non-JSON-RPC errors; errors within a result MUST use completed",
        "wire/test_get.py::test_a_tool_error_is_a_completed_task",
        "tools/test_tools.py::test_any_text_of_an_error_gets_through",
    ),
    _must(
        "Task Execution Errors",
        "completed: the result field MUST contain the result of the request; failed: the error field MUST contain its "
        "error",
        "wire/test_get.py::test_the_nested_result_is_what_the_call_itself_would_have_returned",
        "wire/test_errors.py::test_an_error_of_a_tool_goes_out_as_it_is_when_there_is_no_task",
    ),
    _must(
        "Task Status State Diagram",
        "Nothing leaves a terminal status",
        "wire/test_get.py::test_a_terminal_task_never_changes",
        "wire/test_get.py::test_a_result_survives_its_server",
        "domain/test_lifecycle.py::test_no_arrow_leaves_a_terminal_status",
    ),
    _must(
        "Task Polling",
        "Clients SHOULD respect pollIntervalMs, continue until a terminal status or tasks/cancel, and persist task ids",
        "client/test_watching.py::test_polls_keep_the_interval_of_each_task_and_are_few_at_once",
        "client/test_results.py::test_updates_go_from_where_the_task_is_to_its_end",
        "client/test_resuming.py::test_a_task_is_waited_for_again_and_not_called_again",
    ),
    _must(
        "Task Polling",
        "Servers MAY rate-limit clients polling faster than pollIntervalMs",
        "engine/test_pace.py::test_a_client_that_asks_too_often_is_told_longer_and_longer_and_then_no_longer",
        "engine/test_pace.py::test_who_asks_far_too_often_is_refused_and_told_when_to_come_back",
        "wire/test_pacing.py::test_what_is_asked_far_too_often_is_refused_for_a_while",
        "wire/test_pacing.py::test_who_polls_far_too_often_can_still_answer_and_cancel",
        "wire/test_limits.py::test_what_is_just_within_a_limit_goes_through_and_one_more_does_not",
    ),
)

_UPDATE = (
    _must(
        "contract 4",
        "Empty acknowledgement, no task fields; read-your-writes on the same replica",
        "wire/test_update.py::test_an_answer_is_acknowledged_and_the_next_look_shows_no_question",
        "wire/test_checker.py::test_an_acknowledgement_is_empty",
    ),
    _must(
        "contract 4",
        "Unknown and answered keys are ignored, whatever their value is",
        "wire/test_update.py::test_a_response_to_a_key_that_was_never_issued_is_ignored_whatever_it_is",
        "wire/test_update.py::test_a_response_to_an_answered_key_is_ignored_whatever_it_is",
        "wire/test_bad_input.py::test_what_is_ignored_may_be_anything_but_unrepresentable",
    ),
    _must(
        "contract 4",
        "A response to an outstanding key that does not fit is -32602 with the reason, and nothing of that update is "
        "stored",
        "wire/test_update.py::test_a_response_that_does_not_fit_is_refused_with_the_reason_and_nothing_is_stored",
        "wire/test_update.py::test_the_schema_of_the_question_is_checked_beyond_types",
        "wire/test_update.py::test_the_formats_and_patterns_of_the_question_are_checked",
        "wire/test_update.py::test_what_the_plain_types_of_models_can_not_take_is_refused_at_the_answer",
        "wire/test_update.py::test_an_answer_that_can_not_be_judged_does_not_fit",
        "wire/test_update.py::test_however_much_an_answer_holds_is_refused_before_each_of_it_is_judged",
        "tools/test_questions.py::test_the_content_of_a_form_must_fit_the_fields",
        "wire/test_bad_input.py::test_any_response_to_an_open_question_is_refused",
    ),
    _must(
        "contract 4",
        "Partial answers keep input_required until every outstanding key is answered",
        "wire/test_update.py::test_a_partial_answer_keeps_asking_for_the_rest",
        "wire/test_update.py::test_a_second_question_comes_after_the_first_is_answered",
    ),
    _must(
        "contract 4",
        "First answer wins, across replicas",
        "wire/test_update.py::test_the_first_answer_wins_across_replicas",
        "wire/test_update.py::test_any_replica_takes_an_answer",
        "acceptance/test_two_servers.py::test_the_first_of_two_answers_wins_whichever_server_they_go_to",
    ),
    _must(
        "contract 4",
        "Input kinds the client did not declare are never surfaced; the creating call counts, narrowed by the polling "
        "call",
        "tools/test_questions.py::test_a_kind_that_the_client_did_not_declare_is_never_surfaced_and_fails_the_task",
        "tools/test_questions.py::test_the_capabilities_that_count_are_those_of_the_creating_call",
        "tools/test_questions.py::test_a_poll_may_narrow_what_it_is_shown",
        "tools/test_questions.py::test_an_empty_elicitation_capability_means_forms",
        "wire/test_inline.py::test_a_retry_that_can_no_longer_be_asked_hears_what_is_missing",
    ),
    _must(
        "Elicitation: Security Considerations",
        "Servers MUST NOT request sensitive information by form mode, and MUST use URL mode for it",
        "tools/test_secrets.py::test_a_text_field_with_the_name_of_a_secret_is_refused",
        "tools/test_secrets.py::test_a_tool_that_asks_for_one_fails_and_its_author_reads_why",
        "tools/test_secrets.py::test_a_form_in_the_source_of_a_tool_is_refused_when_the_tool_is_declared",
    ),
    _must(
        "design 8",
        "Logs never carry arguments, answers, results, tokens, or a whole task id",
        "wire/test_redaction.py::test_no_content_no_token_and_no_id_in_full_gets_into_the_log",
    ),
    _must(
        "Elicitation: Security Considerations",
        "URLs are HTTPS outside of development, and hold no credentials",
        "tools/test_secrets.py::test_a_page_may_be_on_https_or_on_this_machine",
        "tools/test_secrets.py::test_no_other_page_may_be_shown",
        "tools/test_secrets.py::test_no_credentials_may_be_in_an_address",
    ),
    _must(
        "contract 4",
        "Answers after a terminal status: acknowledged and ignored",
        "wire/test_update.py::test_answers_to_a_task_that_asks_nothing_are_acknowledged_and_ignored",
    ),
    _must(
        "Task Update Requests",
        "Each request key MUST be unique over the lifetime of a task; a server MUST NOT reuse a key, nor use it for "
        "two "
        "distinct requests",
        "wire/test_update.py::test_a_key_used_for_another_question_fails_the_task_and_is_named",
        "wire/test_update.py::test_the_same_question_under_its_key_is_answered_from_the_record",
        "wire/test_checker.py::test_a_history_tells_what_no_single_response_does",
    ),
    _must(
        "Response (tasks/update)",
        "The server MUST acknowledge with an empty result whose resultType MUST be complete",
        "wire/test_update.py::test_an_answer_is_acknowledged_and_the_next_look_shows_no_question",
    ),
    _must(
        "Response (tasks/update)",
        "Servers SHOULD return a JSON-RPC error if the taskId does not correspond to a known task",
        "wire/test_update.py::test_an_unknown_task_takes_no_answers",
    ),
    _must(
        "Response (tasks/update)",
        "A server SHOULD ignore responses mapped to a key that is not currently outstanding",
        "wire/test_update.py::test_a_response_to_a_key_that_was_never_issued_is_ignored_whatever_it_is",
        "wire/test_update.py::test_a_response_to_an_answered_key_is_ignored_whatever_it_is",
    ),
    _must(
        "Response (tasks/update)",
        "A server MAY accept a partial set; the task remains in input_required until the rest arrives",
        "wire/test_update.py::test_a_partial_answer_keeps_asking_for_the_rest",
    ),
    _must(
        "Task Update Requests",
        "Clients SHOULD fulfil outstanding requests, keep observing, deduplicate keys, and MUST treat each as the "
        "standalone "
        "request that it is",
        "client/test_results.py::test_two_questions_at_once_are_asked_at_once",
        "client/test_manners.py::test_a_question_that_the_server_repeats_is_not_asked_again",
        "client/test_results.py::test_questions_are_answered_by_hand_one_after_the_other",
    ),
)

_CANCEL = (
    _must(
        "contract 5",
        "Empty acknowledgement, idempotent, also on terminal tasks, which do not change",
        "wire/test_cancel.py::test_a_terminal_task_is_acknowledged_and_stays_as_it_is",
        "wire/test_cancel.py::test_a_cancelled_task_can_be_cancelled_again",
    ),
    _must(
        "contract 5",
        "Cooperative: intent is stored, then the worker is told; returns at once",
        "wire/test_cancel.py::test_the_intent_is_stored_before_it_is_acknowledged",
        "wire/test_cancel.py::test_the_acknowledgement_does_not_wait_for_the_work_which_may_finish_all_the_same",
        "wire/test_cancel.py::test_a_parked_task_is_cancelled_at_once",
        "wire/test_cancel.py::test_a_task_that_nobody_runs_is_cancelled_at_once",
        "wire/test_cancel.py::test_a_plain_function_sees_that_it_was_cancelled_and_decides",
    ),
    _must(
        "contract 5",
        "Closing a connection never cancels a task",
        "wire/test_cancel.py::test_a_client_that_hangs_up_cancels_no_task",
    ),
    _must(
        "Task Cancellation",
        "notifications/cancelled MUST NOT be used for task cancellation",
        "wire/test_cancel.py::test_a_cancelled_notification_cancels_no_task",
        "wire/test_stdio.py::test_a_running_task_is_cancelled_and_a_notification_does_not_do_it",
    ),
    _must(
        "Response (tasks/cancel)",
        "The server MUST acknowledge with an empty result whose resultType MUST be complete",
        "wire/test_cancel.py::test_a_running_task_is_told_and_ends_as_cancelled",
        "wire/test_checker.py::test_an_acknowledgement_is_empty",
    ),
    _must(
        "Response (tasks/cancel)",
        "Servers SHOULD return a JSON-RPC error if the taskId does not correspond to a known task",
        "wire/test_cancel.py::test_an_unknown_task_can_not_be_cancelled",
    ),
)

_ERRORS = (
    _must(
        "contract 6",
        "Malformed, unknown, foreign, purged id: -32602; foreign, unknown and purged are identical in bytes",
        "wire/test_errors.py::test_a_malformed_id_is_said_to_be_one",
        "wire/test_errors.py::test_an_unknown_id_is_not_found_by_any_method",
        "wire/test_identity.py::test_foreign_unknown_and_purged_are_the_same_bytes_and_only_the_owner_hears_of_expiry",
        "wire/test_ownership.py::test_foreign_unknown_and_purged_are_one_answer_byte_for_byte_whoever_asks_for_whatever",
        "wire/test_ownership.py::test_a_bad_request_gets_the_same_answer_whether_the_task_is_somebody_elses_or_never_was",
        "wire/test_telling_apart.py::test_no_answer_takes_longer_or_shorter_than_that_about_an_unknown_task",
        "store/postgres/test_strangers.py::test_no_row_of_somebody_elses_comes_from_the_database",
        "store/postgres/test_strangers.py::test_a_stranger_does_not_wait_for_whoever_holds_the_task",
        "store/postgres/test_strangers.py::test_nor_does_who_made_up_the_token_of_external_work",
        "wire/test_bad_input.py::test_an_id_of_any_kind_is_refused",
    ),
    _must(
        "contract 6",
        "Expired id, asked by its owner while the tombstone lives: -32602, Task has expired",
        "wire/test_expiry.py::test_a_deleted_task_leaves_its_owner_a_tombstone_and_then_nothing",
    ),
    _must(
        "contract 6",
        "Mcp-Name present on tasks/* and unlike params.taskId after decoding: -32020, HTTP 400",
        "wire/test_headers.py::test_a_name_that_is_another_text_is_refused_before_anything_is_looked_up",
        "wire/test_headers.py::test_a_name_that_is_the_task_id_is_accepted_plain_or_encoded",
        "wire/test_headers.py::test_an_empty_name_is_not_an_absent_one",
        "wire/test_headers.py::test_a_header_that_comes_twice_is_refused_even_if_both_are_right",
        "wire/test_bad_input.py::test_the_last_of_two_equal_members_counts_and_is_what_the_header_is_held_against",
    ),
    _must(
        "contract 6",
        "Mcp-Name absent on tasks/*: accepted, with a warning counter",
        "wire/test_headers.py::test_an_absent_name_is_accepted_and_counted",
    ),
    _must(
        "contract 6",
        "Out of capacity: -32000 family with data.retryAfterMs",
        "wire/test_errors.py::test_a_store_that_is_away_says_when_to_try_again",
        "wire/test_idempotency.py::test_past_the_backlog_a_call_is_refused_before_anything_is_stored",
        "wire/test_idempotency.py::test_one_tenant_does_not_take_the_room_of_another",
        "wire/test_refusals.py::test_a_call_that_finds_the_backlog_full_is_in_the_log",
    ),
    _must(
        "contract 6",
        "Over a limit that waiting may lift: -32000 with data.retryAfterMs; a size, which it never does: -32602; 413 "
        "or 503 where we speak HTTP",
        "wire/test_limits.py::test_what_is_just_within_a_limit_goes_through_and_one_more_does_not",
        "wire/test_limits.py::test_every_limit_has_its_edge",
        "wire/test_callbacks.py::test_a_body_is_read_up_to_the_bound_and_no_more",
    ),
    _must(
        "contract 6",
        "Anything unforeseen: -32603, no internals in the message",
        "wire/test_errors.py::test_what_nobody_foresaw_is_an_internal_error_without_internals",
        "wire/test_lifespans.py::test_a_server_without_the_lifespan_says_once_what_to_do_and_serves_no_task",
        "wire/test_unreadable.py::test_a_result_that_can_not_be_opened_is_an_internal_error",
    ),
    _must(
        "bad input",
        "Every malformed request gets its error and leaves the store as it was; the server goes on serving",
        "wire/test_bad_input.py::test_what_is_no_json_is_a_parse_error",
        "wire/test_bad_input.py::test_what_is_no_request_is_an_invalid_request",
        "wire/test_bad_input.py::test_a_body_that_is_too_large_is_refused_unread",
        "wire/test_bad_input.py::test_json_that_is_too_deep_to_keep_is_refused",
        "wire/test_bad_input.py::test_other_content_types_and_methods_are_refused_by_http",
        "wire/test_bad_input.py::test_headers_that_http_libraries_would_not_send",
        "wire/test_bad_input.py::test_what_json_text_can_not_carry_is_refused_wherever_it_stands",
        "wire/test_bad_input.py::test_any_parameters_of_a_task_method_are_answered",
        "wire/test_stdio.py::test_a_line_that_is_no_message_does_not_stop_the_server",
    ),
    _must(
        "Protocol Errors",
        "Invalid or nonexistent taskId: -32602; MUST for tasks/get, SHOULD for tasks/update and tasks/cancel",
        "wire/test_errors.py::test_an_unknown_id_is_not_found_by_any_method",
        "wire/test_errors.py::test_parameters_of_the_wrong_type_are_invalid",
    ),
    _must(
        "Protocol Errors",
        "Servers MUST return -32021 for non-declaring clients issuing tasks/get, tasks/update and tasks/cancel, and "
        "for those "
        "requesting task notifications",
        "wire/test_negotiation.py::test_task_methods_need_the_extension_declared_before_anything_is_looked_up",
        "wire/test_negotiation.py::test_listening_for_tasks_needs_the_extension_declared",
    ),
    _must(
        "Protocol Errors",
        "Servers SHOULD provide informative error messages",
        "wire/test_errors.py::test_errors_inform_and_carry_no_paths_or_sql",
    ),
    _must(
        "Security Considerations",
        "Servers MUST generate task ids with sufficient entropy that a third party cannot enumerate or guess them",
        "wire/test_creation.py::test_every_id_is_new_and_can_go_into_a_header",
        "domain/test_ids.py::test_an_id_takes_at_least_128_random_bits_from_the_source_it_is_given",
    ),
    _must(
        "Security Considerations",
        "Servers MUST perform authentication and authorization checks on each task-related request",
        "wire/test_identity.py::test_without_a_good_token_nothing_is_served",
        "wire/test_identity.py::test_two_users_do_not_see_each_others_tasks",
        "wire/test_identity.py::test_every_part_of_the_principal_counts_and_nothing_else_does",
        "wire/test_identity.py::test_a_tenant_is_a_claim_of_the_token_if_it_is_configured",
        "wire/test_identity.py::test_a_tenant_claim_that_can_not_be_used_is_refused_and_never_a_tenant_that_others_share",
        "wire/test_identity.py::test_the_state_of_a_round_trip_is_good_for_its_own_user_only",
        "wire/test_identity.py::test_nothing_that_a_client_writes_into_a_request_has_a_say",
        "wire/test_ownership.py::test_each_cell_of_the_table_is_what_is_answered",
        "wire/test_tokens.py::test_a_bad_token_is_no_token",
        "wire/test_tokens.py::test_a_task_keeps_its_owner_while_the_keys_of_the_issuer_change",
        "wire/test_tokens.py::test_the_same_subject_of_another_issuer_is_somebody_else",
        "wire/test_tokens.py::test_one_user_in_two_tenants_is_two_owners_and_so_are_two_users_in_one",
        "wire/test_tokens.py::test_one_user_by_two_clients_is_two_owners",
    ),
    _must(
        "Security Considerations",
        "Hosts MUST apply the same trust model to inputRequests as to standard elicitation and sampling requests",
        later="hosts",
    ),
)

_CLIENT_SIDE = (
    _must(
        "contract 8",
        "Mcp-Method is the method, Mcp-Name the task id (encoded when it must be) or the tool's name: the server's "
        "half",
        "wire/test_headers.py::test_the_method_header_must_be_there_and_say_the_method",
        "wire/test_headers.py::test_the_version_header_must_say_the_version_of_the_envelope",
        "wire/test_headers.py::test_the_name_of_a_tool_call_is_the_name_of_the_tool",
    ),
    _must(
        "contract 8",
        "One builder makes the headers",
        "client/test_manners.py::test_every_request_names_its_method_and_its_task_in_the_headers",
    ),
    _must(
        "contract 8",
        "Poll no faster than pollIntervalMs, follow its changes, stop at terminal",
        "client/test_watching.py::test_polls_keep_the_interval_of_each_task_and_are_few_at_once",
        "client/test_manners.py::test_polls_follow_an_interval_that_changes",
        "client/test_faults.py::test_a_poll_is_never_sooner_than_the_server_said",
    ),
    _must(
        "contract 8",
        "Input keys are asked of the user once",
        "client/test_manners.py::test_a_question_that_the_server_repeats_is_not_asked_again",
        "client/test_crashes.py::test_wherever_a_client_dies_the_tool_has_run_once_and_the_user_was_asked_once",
        "client/test_crashes.py::test_two_processes_that_wait_for_one_task_ask_once",
    ),
    _must(
        "contract 8",
        "Handles are stored before anything else is done with them; after a restart they are polled",
        "client/test_crashes.py::test_wherever_a_client_dies_the_tool_has_run_once_and_the_user_was_asked_once",
        "client/test_resuming.py::test_a_task_is_waited_for_again_and_not_called_again",
    ),
    _must(
        "contract 8",
        "Compare instants, not strings",
        "client/test_snapshot.py::test_an_instant_without_a_zone_is_of_utc_and_instants_are_compared_as_such",
    ),
    _must(
        "Streamable HTTP: Routing Headers",
        "The client MUST set Mcp-Name to params.taskId",
        "client/test_manners.py::test_every_request_names_its_method_and_its_task_in_the_headers",
    ),
)

_EXPIRY = (
    _must(
        "contract 9",
        "ttlMs counts from creation and may change",
        "wire/test_expiry.py::test_polling_does_not_prolong",
        "wire/test_expiry.py::test_a_kept_result_extends_the_ttl_and_clients_read_the_changed_value",
        "wire/test_expiry.py::test_a_task_without_ttl_never_expires",
    ),
    _must(
        "contract 9",
        "Past it, an unfinished task is stopped and becomes failed",
        "wire/test_expiry.py::test_a_running_task_is_stopped_and_fails_when_its_ttl_has_run_out",
        "wire/test_expiry.py::test_a_parked_task_fails_when_its_ttl_has_run_out",
        "wire/test_expiry.py::test_the_server_keeps_house_by_itself",
    ),
    _must(
        "contract 9",
        "Later the task is deleted and leaves a tombstone for its owner",
        "wire/test_expiry.py::test_a_deleted_task_leaves_its_owner_a_tombstone_and_then_nothing",
    ),
    _must(
        "contract 9",
        "keep_result may extend ttlMs when a task finishes",
        "wire/test_expiry.py::test_a_kept_result_extends_the_ttl_and_clients_read_the_changed_value",
        "wire/test_expiry.py::test_a_kept_result_never_shortens_the_ttl",
    ),
    _must(
        "contract 9",
        "ttl must be positive; zero and negative are refused when the tool is declared",
        "wire/test_expiry.py::test_a_duration_that_is_not_positive_is_refused_at_declaration",
        "wire/test_expiry.py::test_durations_are_read_as_they_are_written",
    ),
)

_LISTENING = (
    _must(
        "contract 7",
        "Over HTTP: a POST whose response is an SSE stream. No GET, no Last-Event-ID, no session header, no event ids",
        "wire/test_listen.py::test_there_is_no_stream_by_get_and_none_to_resume",
        "wire/test_listen.py::test_a_client_that_takes_no_stream_gets_none",
        "wire/test_listen.py::test_without_an_id_it_is_a_notification_and_nobody_listens",
        "wire/test_listen.py::test_it_is_acknowledged_first_then_each_task_is_shown_once_as_tasks_get_shows_it",
    ),
    _must(
        "contract 7",
        "The acknowledgement comes first, with the accepted ids only; unknown and foreign ones are left out "
        "alike; duplicates fold",
        "wire/test_listen.py::test_what_is_accepted_keeps_the_order_asked_and_duplicates_fold",
        "wire/test_listen.py::test_unknown_and_malformed_ids_are_left_out_silently",
        "wire/test_listen.py::test_with_nothing_to_listen_to_it_is_acknowledged_and_over",
        "wire/test_listen.py::test_listening_to_an_id_before_there_is_such_a_task_is_listening_to_nothing",
        "wire/test_listen.py::test_task_ids_that_are_no_list_of_strings_are_invalid_params",
        "wire/test_listen.py::test_core_kinds_that_are_none_are_invalid_params_as_the_sdk_says",
        "wire/test_listen_ends.py::test_a_foreign_task_is_left_out_as_an_unknown_one_is",
    ),
    _must(
        "contract 7",
        "One snapshot of each accepted task, so that nothing between creation and listening is missed; then one "
        "on each change, equal to what tasks/get says",
        "wire/test_listen.py::test_it_is_acknowledged_first_then_each_task_is_shown_once_as_tasks_get_shows_it",
        "wire/test_listen.py::test_nothing_between_creation_and_listening_is_missed",
        "wire/test_listen.py::test_each_change_is_one_snapshot_equal_to_what_tasks_get_says",
        "wire/test_listen.py::test_only_the_questions_that_the_listener_declared_are_shown",
        "wire/test_listen.py::test_a_whole_task_is_followed_from_its_creation_to_its_result",
        "wire/test_listen.py::test_a_large_result_comes_whole",
        "wire/test_listen_generated.py::test_every_stream_agrees_with_the_history_of_its_tasks",
        "wire/test_listen_stdio.py::test_a_task_is_followed_to_its_end",
    ),
    _must(
        "contract 7",
        "Every frame carries the id of the listen request with its JSON type",
        "wire/test_listen.py::test_every_frame_carries_the_id_of_the_request_with_its_json_type",
        "wire/test_listen.py::test_one_id_in_two_requests_is_two_streams",
        "wire/test_listen_stdio.py::test_streams_share_the_pipe_and_each_frame_says_which_it_belongs_to",
        "wire/test_listen_stdio.py::test_one_id_for_two_streams_at_once_gets_the_frames_of_both",
        "wire/test_listen_stdio.py::test_the_id_of_a_stream_that_is_over_may_be_used_again",
    ),
    _must(
        "contract 7",
        "Snapshots never go backwards; states that a slow reader missed may be folded into the newest",
        "wire/test_listen.py::test_states_may_be_folded_but_never_go_backwards_and_the_last_one_comes",
        "wire/test_listen_ends.py::test_a_reader_that_is_slow_but_reads_is_not_cut_off",
        "wire/test_listen_generated.py::test_every_stream_agrees_with_the_history_of_its_tasks",
    ),
    _must(
        "contract 7",
        "A reader that stops reading is cut off at a bound, and others do not feel it",
        "wire/test_listen_ends.py::test_a_reader_that_stops_reading_is_cut_off_and_the_others_do_not_feel_it",
        "wire/test_listen_ends.py::test_a_stream_that_was_cut_off_is_closed_without_a_result",
    ),
    _must(
        "contract 7",
        "When all its tasks are terminal (and no other kind was asked for) the stream ends with the listen result",
        "wire/test_listen.py::test_the_last_snapshot_says_how_it_ended_and_then_the_stream_ends",
        "wire/test_listen.py::test_a_task_that_is_over_already_is_shown_and_the_stream_ends",
        "wire/test_listen.py::test_it_ends_with_the_last_of_its_tasks",
        "wire/test_listen.py::test_a_task_that_expires_is_shown_as_failed_and_the_stream_ends",
        "wire/test_listen_beside.py::test_it_goes_on_when_the_tasks_are_over",
    ),
    _must(
        "contract 7",
        "On shutdown likewise",
        "wire/test_listen_ends.py::test_when_the_server_is_told_to_stop_each_stream_ends_with_its_result",
        "wire/test_listen_beside.py::test_it_ends_with_its_result_when_the_server_does",
        "wire/test_listen_replicas.py::test_a_server_that_is_told_to_stop_ends_its_streams_and_one_that_is_killed_drops_them",
        "wire/test_listen_stdio.py::test_streams_that_are_open_when_the_server_ends_get_their_result",
    ),
    _must(
        "contract 7",
        "The core kinds (tools, prompts, resources) work on the same stream",
        "wire/test_listen_beside.py::test_both_are_acknowledged_in_one_frame",
        "wire/test_listen_beside.py::test_what_the_core_says_comes_between_the_snapshots",
        "wire/test_listen_beside.py::test_kinds_that_nobody_asked_for_do_not_come",
        "wire/test_listen_beside.py::test_without_an_accepted_task_it_is_the_cores_stream",
        "wire/test_listen_beside.py::test_a_server_without_core_kinds_acknowledges_the_tasks_only",
        "wire/test_listen_beside.py::test_a_listener_for_core_kinds_alone_is_the_sdks",
        "wire/test_listen_stdio.py::test_core_kinds_come_on_the_same_stream",
    ),
    _must(
        "contract 7",
        "Works across replicas and across processes on one SQLite file",
        "wire/test_listen_replicas.py::test_a_task_that_another_process_runs_is_followed_to_its_end",
        "wire/test_listen_replicas.py::test_what_another_process_asks_is_shown_and_answered_through_any",
        "wire/test_listen_replicas.py::test_a_change_elsewhere_is_heard_soon",
        "wire/test_listen_replicas.py::test_listeners_of_both_hear_the_same",
        "wire/test_listen_replicas.py::test_many_tasks_are_followed_through_the_process_that_does_not_run_them",
    ),
    _must(
        "design 1",
        "Closing the stream ends transport work only, and frees all of it at once",
        "wire/test_listen.py::test_closing_the_stream_does_nothing_to_the_task",
        "wire/test_listen.py::test_listening_again_and_again_shows_each_time_how_it_stands",
        "wire/test_listen.py::test_two_streams_for_one_task_hear_the_same_and_the_end_of_one_is_not_the_others",
        "wire/test_listen_leaks.py::test_a_thousand_listeners_that_hang_up_leave_no_stream_no_task_and_no_file_handle",
        "wire/test_listen_ends.py::test_a_client_that_hangs_up_before_anything_was_sent_leaves_nothing_behind",
        "wire/test_listen_beside.py::test_a_client_that_hangs_up_leaves_neither_of_the_two_behind",
        "wire/test_listen_stdio.py::test_a_stream_that_was_given_up_says_nothing_more_and_its_task_goes_on",
        "wire/test_listen_leaks.py::test_a_thousand_listeners_that_hang_up_leave_no_stream_no_task_and_no_file_handle",
    ),
    _must(
        "design 8",
        "Subscriptions are bounded, in all, per owner and in their tasks; a stream ends no later than its token",
        "wire/test_listen_ends.py::test_a_server_has_so_many_streams_and_no_more",
        "wire/test_listen_ends.py::test_an_owner_may_listen_so_many_times_and_others_do_not_feel_it",
        "wire/test_listen_ends.py::test_one_stream_has_so_many_tasks_and_no_more",
        "wire/test_listen_ends.py::test_a_stream_ends_no_later_than_its_token",
        "wire/test_tokens.py::test_a_stream_ends_with_the_token_that_it_was_asked_for_by",
        "wire/test_listen_ends.py::test_a_store_that_is_away_refuses_the_stream_before_it_begins",
    ),
    _must(
        "Task Status Notifications",
        "If a client requests task status notifications but does not declare the extension, the server MUST "
        "return a JSON-RPC error specifying the missing capabilities",
        "wire/test_listen.py::test_without_the_extension_there_is_no_stream",
        "wire/test_listen_stdio.py::test_without_the_extension_there_is_no_stream",
    ),
    _must(
        "Task Status Notifications",
        "Each notification carries a complete DetailedTask, identical to what tasks/get would have returned at "
        "that moment",
        "wire/test_listen.py::test_each_change_is_one_snapshot_equal_to_what_tasks_get_says",
        "wire/test_listen.py::test_the_last_snapshot_says_how_it_ended_and_then_the_stream_ends",
    ),
    _must(
        "Task Status Notifications",
        "notifications/progress and notifications/message MUST NOT be sent on the stream for a task",
        "wire/test_listen.py::test_no_progress_and_no_log_message_comes_on_it",
    ),
)

_BEYOND = (
    _must(
        "design 8",
        "Owner(tenant, principal) comes from the verified token (issuer, client and subject; tenant from a claim), or "
        "from a function of the server's",
        "wire/test_identity.py::test_every_part_of_the_principal_counts_and_nothing_else_does",
        "wire/test_identity.py::test_a_tenant_is_a_claim_of_the_token_if_it_is_configured",
        "wire/test_identity.py::test_a_server_may_identify_its_users_itself",
        "wire/test_tokens.py::test_one_user_by_two_clients_is_two_owners",
        "wire/test_tokens.py::test_the_example_that_identifies_users_makes_it_one",
        "ops/test_checks.py::test_an_option_that_can_not_be_is_refused_in_one_sentence",
    ),
    _must(
        "design 8",
        "HTTP without authentication is one anonymous owner; a warning at start-up says so, and binding to a "
        "non-loopback address needs an explicit flag",
        "wire/test_identity.py::test_without_authentication_the_id_is_the_key",
        "ops/test_exposure.py::test_anything_else_is_refused_unless_somebody_says_so",
        "ops/test_exposure.py::test_every_way_to_start_a_server_looks_before_it_opens_anything",
        "acceptance/test_startup.py::test_a_server_without_authentication_is_not_opened_to_the_network_by_mistake",
        "acceptance/test_startup.py::test_who_starts_a_server_without_authentication_is_told_what_protects_its_tasks",
    ),
    _must(
        "design 5",
        "A step runs once unless the process dies inside it; at most once means that it is told, and not repeated",
        "tools/test_steps.py::test_a_step_that_ran_is_not_run_again_and_its_result_is_what_it_was",
        "tools/test_steps.py::test_a_crash_costs_the_step_in_flight_and_one_that_may_run_at_most_once_is_not_repeated",
        "tools/test_shapes.py::test_a_result_comes_back_as_it_was",
    ),
    _must(
        "design 5",
        "Journal and code agree, or the task fails with a message that names both; another version is other code",
        "tools/test_steps.py::test_code_that_is_not_what_began_the_task_fails_it_and_names_both_sides",
        "tools/test_attempts.py::test_a_task_is_finished_by_the_code_that_began_it",
        "tools/test_attempts.py::test_without_its_code_a_task_waits_and_is_not_finished_by_another",
    ),
    _must(
        "design 5",
        "Exceptions that retry= is for reschedule the task; any other is a tool error",
        "tools/test_attempts.py::test_another_attempt_begins_at_the_step_that_failed_and_keeps_what_came_before",
        "tools/test_attempts.py::test_what_is_an_answer_or_not_in_on_ends_the_task_at_once",
        "tools/test_retrying.py::test_a_bug_a_refusal_and_what_is_no_error_never_is",
    ),
    _must(
        "design 5",
        "timeout= bounds one run: a hung tool loses its run, and that is a tool error",
        "tools/test_attempts.py::test_a_tool_past_its_timeout_is_cancelled_and_that_is_a_tool_error",
        "tools/test_attempts.py::test_a_plain_tool_that_does_not_look_is_given_up_when_its_timeout_is_over",
    ),
    _must(
        "design 5",
        "Timers and questions that nobody answers in time are waited for durably, and no answer is lost meanwhile",
        "tools/test_waiting.py::test_a_task_sleeps_for_days_and_holds_nothing_meanwhile",
        "tools/test_waiting.py::test_a_tool_goes_on_without_the_answer_once_its_time_is_over",
        "tools/test_waiting.py::test_an_answer_is_kept_that_comes_while_something_else_has_the_tool_running",
    ),
    _must(
        "design 5",
        "A tools/call with an idempotency key returns the existing task of the same owner, whatever its status",
        "wire/test_idempotency.py::test_the_same_call_again_is_the_same_task",
        "wire/test_idempotency.py::test_the_handle_says_what_has_become_of_it_whatever_that_is",
        "wire/test_idempotency.py::test_two_calls_at_once_are_one_task_whatever_replica_they_reach",
        "wire/test_idempotency.py::test_a_key_is_its_owners",
        "wire/test_idempotency.py::test_all_rounds_of_a_call_carry_its_key_and_once_there_is_a_task_nothing_is_asked_again",
        "wire/test_idempotency.py::test_a_key_is_free_again_once_its_task_is_purged",
    ),
    _must(
        "design 5",
        "server/discover says that idempotency keys are honoured, under a name of its own; nothing else does",
        "wire/test_idempotency.py::test_discovery_says_that_keys_are_honoured_beside_the_tasks_extension",
        "wire/test_idempotency.py::test_an_sdk_client_reads_it",
        "wire/test_handshake.py::test_the_task_methods_do_not_exist",
    ),
    _must(
        "design 5",
        "The same key with other arguments is -32602",
        "wire/test_idempotency.py::test_another_call_under_the_same_key_is_refused_and_stores_nothing",
        "wire/test_idempotency.py::test_arguments_are_equal_as_json_is",
        "wire/test_idempotency.py::test_what_is_no_key_is_refused_and_the_reason_said",
    ),
    _must(
        "design 5",
        "A call with a key that runs inside its request is not cancelled with it: its client can come back",
        "wire/test_idempotency.py::test_work_with_a_key_goes_on_when_its_client_hangs_up_and_is_there_when_it_comes_back",
        "wire/test_idempotency.py::test_past_the_deadline_it_goes_on_as_well_and_the_client_hears_how_to_wait_on",
        "wire/test_idempotency.py::test_a_retry_without_the_key_does_not_end_the_work_either",
        "wire/test_idempotency.py::test_without_a_key_everything_is_as_it_was",
    ),
    _must(
        "design 7",
        "Work that another system owns is settled from any process that has the store, once, by who has its handle",
        "tools/test_external.py::test_a_result_is_what_the_tool_gets",
        "tools/test_external.py::test_a_process_that_serves_nothing_may_settle_work",
        "tools/test_external.py::test_forged_handles_and_those_of_others_are_one_answer_and_change_nothing",
        "tools/test_external.py::test_after_the_end_of_the_task_it_is_too_late",
        "tools/test_external.py::test_of_two_words_at_once_one_counts_and_the_same_again_is_no_error",
    ),
    _must(
        "design 7",
        "The same by an authenticated HTTP callback: forged, unknown and missing handles are the same bytes",
        "wire/test_callbacks.py::test_a_result",
        "wire/test_callbacks.py::test_whoever_has_no_handle_hears_the_same_bytes_whatever_they_have",
        "wire/test_callbacks.py::test_what_is_over_is_a_conflict",
        "wire/test_callbacks.py::test_a_body_is_read_up_to_the_bound_and_no_more",
        "wire/test_callbacks.py::test_no_log_shows_the_handle",
    ),
    _must(
        "design 7",
        "Polling is durable timers; a subprocess job survives a restart of the server, and so does a Celery job",
        "engine/test_polling.py::test_the_intervals_grow_and_all_looks_are_one_entry",
        "adapters/test_process.py::test_jobs_go_on_while_their_server_is_killed_and_the_next_one_finds_them",
        "adapters/test_celery.py::test_a_celery_task_goes_on_while_the_server_is_killed_and_its_result_is_found_by_the_next_one",
    ),
)

REQUIREMENTS: Final[tuple[Requirement, ...]] = (
    *_NEGOTIATION,
    *_CREATION,
    *_GET,
    *_UPDATE,
    *_CANCEL,
    *_ERRORS,
    *_CLIENT_SIDE,
    *_EXPIRY,
    *_LISTENING,
    *_BEYOND,
)

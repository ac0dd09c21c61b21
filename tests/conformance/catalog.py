"""What the official suite has to say about us: every scenario that must run, and how many of its checks must succeed.

The suite's own exit code is no judge. A scenario that is skipped, one whose tool is not there, and one that emits
nothing all exit 0, and some task checks pass on a server without tasks. So the numbers are written down here, one per
scenario, for one exact version of the suite, and `reading.py` compares rows with them. Where they come from:

- **Core, 152.** Both the SDK's everything-server and the fixtures of `examples/conformance_core.py` on a bare
  `MCPServer` give these numbers: 115 checks of the scenarios, and 37 `wire-schema-valid` rows, one for each scenario
  whose traffic the suite can watch (all but server-stateless, server-sse-multiple-streams and
  dns-rebinding-protection, which speak HTTP by themselves). `python -m tests.conformance.run --baseline` measures them.
- **Tasks, 44.** 35 checks of the nine scenarios, and one `wire-schema-valid` row each.
- **Handshake, 84.** The revision before (2025-11-25), on the same fixtures and those of
  `examples/conformance_handshake.py`. The same command measures it on a bare `MCPServer`.
- **Clients, 411 and 247.** The suite as the server: the SDK's own conformance client has our client extension in each
  of its connections, and must come to what it comes to without. The same command measures it as it is.

A row that is not a success is a failure of ours unless it is listed in `accepted`, with the reason beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
SPEC_VERSION = "2026-07-28"
HANDSHAKE_VERSION = "2025-11-25"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one run of the suite must come to.

    `successes` maps each scenario that must run to its number of succeeding checks; `accepted` maps the (scenario,
    check) of a row that is neither a success nor our failure to the one status that it may have. The checks in `told`
    only tell what went over the wire: rows of theirs that are INFO judge nothing and are left out.
    """

    successes: Mapping[str, int]
    accepted: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    told: frozenset[str] = frozenset()

    @property
    def total(self) -> int:
        return sum(self.successes.values())


CORE = Expectation(
    successes={
        "server-stateless": 30,
        "completion-complete": 2,
        "tools-list": 4,
        "tools-call-simple-text": 2,
        "tools-call-image": 2,
        "tools-call-audio": 2,
        "tools-call-embedded-resource": 2,
        "tools-call-mixed-content": 2,
        "tools-call-error": 2,
        "tools-call-with-progress": 2,
        "json-schema-2020-12": 8,
        "server-sse-multiple-streams": 1,
        "resources-list": 2,
        "resources-read-text": 2,
        "resources-read-binary": 2,
        "resources-templates-read": 2,
        "sep-2164-resource-not-found": 4,
        "prompts-list": 2,
        "prompts-get-simple": 2,
        "prompts-get-with-args": 2,
        "prompts-get-embedded-resource": 2,
        "prompts-get-with-image": 2,
        "dns-rebinding-protection": 2,
        "caching": 8,
        "http-header-validation": 14,
        "http-custom-header-server-validation": 10,
        "input-required-result-basic-elicitation": 3,
        "input-required-result-basic-sampling": 3,
        "input-required-result-basic-list-roots": 3,
        "input-required-result-request-state": 3,
        "input-required-result-multiple-input-requests": 3,
        "input-required-result-multi-round": 4,
        "input-required-result-missing-input-response": 2,
        "input-required-result-non-tool-request": 3,
        "input-required-result-result-type": 2,
        "input-required-result-unsupported-methods": 2,
        "input-required-result-tampered-state": 2,
        "input-required-result-capability-check": 2,
        "input-required-result-ignore-extra-params": 2,
        "input-required-result-validate-input": 3,
    },
    accepted={
        # The scenario sends `tools/list` three times and looks at the streams that come back. The SDK answers it as
        # plain JSON, which the protocol allows, so there is no stream to look at and the suite says so. A bare SDK
        # server gets the same row; it is not among the 152.
        ("server-sse-multiple-streams", "server-sse-streams-functional"): "INFO",
    },
)

HANDSHAKE = Expectation(
    successes={
        "server-initialize": 3,
        "server-session-lifecycle": 3,
        "logging-set-level": 2,
        "ping": 2,
        "completion-complete": 2,
        "tools-list": 3,
        "tools-call-simple-text": 2,
        "tools-call-image": 2,
        "tools-call-audio": 2,
        "tools-call-embedded-resource": 2,
        "tools-call-mixed-content": 2,
        "tools-call-with-logging": 2,
        "tools-call-error": 2,
        "tools-call-with-progress": 2,
        "tools-call-sampling": 2,
        "tools-call-elicitation": 2,
        "json-schema-2020-12": 8,
        "elicitation-sep1034-defaults": 6,
        "server-sse-polling": 3,
        "server-sse-multiple-streams": 2,
        "elicitation-sep1330-enums": 6,
        "resources-list": 2,
        "resources-read-text": 2,
        "resources-read-binary": 2,
        "resources-templates-read": 2,
        "resources-subscribe": 2,
        "resources-unsubscribe": 2,
        "prompts-list": 2,
        "prompts-get-simple": 2,
        "prompts-get-with-args": 2,
        "prompts-get-embedded-resource": 2,
        "prompts-get-with-image": 2,
        "dns-rebinding-protection": 2,
    },
    accepted={
        # The scenario tells what went over the wire, as rows that judge nothing.
        ("server-sse-polling", "outgoing-request"): "INFO",
        ("server-sse-polling", "incoming-response"): "INFO",
        ("server-sse-polling", "incoming-sse-event"): "INFO",
        ("server-sse-polling", "stream-closed"): "INFO",
    },
)

TASKS = Expectation(
    successes={
        "tasks-lifecycle": 9,
        "tasks-capability-negotiation": 5,
        "tasks-wire-fields": 4,
        "tasks-request-state-removal": 3,
        "tasks-mrtr-input": 4,
        "tasks-request-headers": 5,
        "tasks-dispatch-and-envelope": 9,
        "tasks-required-task-error": 3,
        "tasks-mrtr-composition": 2,
        "tasks-status-notifications": 0,
    },
    accepted={
        # The scenario consists of this one row, whatever the server does: it waits for a rewrite upstream. Listening
        # needs tests of our own.
        ("tasks-status-notifications", "tasks-status-notifications"): "SKIPPED",
    },
)

TOLD = frozenset(
    {
        "incoming-request",
        "outgoing-response",
        "incoming-auth-request",
        "outgoing-auth-response",
        "outgoing-sse-event",
        "outgoing-stream-close",
        "scope-retry-auth-attempt",
        "server-info",
    }
)

CLIENTS = Expectation(
    successes={
        "tools_call": 2,
        "request-metadata": 8,
        "auth/metadata-default": 18,
        "auth/metadata-var1": 18,
        "auth/metadata-var2": 18,
        "auth/metadata-var3": 18,
        "auth/basic-cimd": 12,
        "auth/scope-from-www-authenticate": 14,
        "auth/scope-from-scopes-supported": 14,
        "auth/scope-omitted-when-undefined": 14,
        "auth/scope-step-up": 23,
        "auth/scope-retry-limit": 11,
        "auth/token-endpoint-auth-basic": 19,
        "auth/token-endpoint-auth-post": 19,
        "auth/token-endpoint-auth-none": 19,
        "auth/pre-registration": 12,
        "auth/resource-mismatch": 2,
        "auth/offline-access-scope": 12,
        "auth/offline-access-not-supported": 14,
        "auth/authorization-server-migration": 27,
        "auth/iss-supported": 14,
        "auth/iss-not-advertised": 14,
        "auth/iss-supported-missing": 8,
        "auth/iss-wrong-issuer": 8,
        "auth/iss-unexpected": 8,
        "auth/iss-normalized": 8,
        "auth/metadata-issuer-mismatch": 3,
        "sep-2322-client-request-state": 5,
        "http-standard-headers": 9,
        "http-custom-headers": 18,
        "http-invalid-tool-headers": 12,
        "json-schema-ref-no-deref": 1,
        "json-schema-2020-12-preservation": 9,
    },
    accepted={
        # `initialize` and `notifications/initialized`, which a client of this revision does not send.
        ("http-standard-headers", "sep-2243-client-includes-standard-headers"): "SKIPPED",
        # The SDK's client is registered beforehand here, so the suite sees no metadata of it to look at.
        ("auth/offline-access-scope", "sep-2207-client-metadata-grant-types"): "INFO",
    },
    told=TOLD,
)

HANDSHAKE_CLIENTS = Expectation(
    successes={
        "initialize": 1,
        "tools_call": 2,
        "elicitation-sep1034-client-defaults": 5,
        "sse-retry": 3,
        "auth/metadata-default": 18,
        "auth/metadata-var1": 18,
        "auth/metadata-var2": 18,
        "auth/metadata-var3": 18,
        "auth/basic-cimd": 13,
        "auth/scope-from-www-authenticate": 14,
        "auth/scope-from-scopes-supported": 14,
        "auth/scope-omitted-when-undefined": 14,
        "auth/scope-step-up": 20,
        "auth/scope-retry-limit": 10,
        "auth/token-endpoint-auth-basic": 19,
        "auth/token-endpoint-auth-post": 19,
        "auth/token-endpoint-auth-none": 19,
        "auth/pre-registration": 13,
        "json-schema-2020-12-preservation": 9,
    },
    told=TOLD,
)

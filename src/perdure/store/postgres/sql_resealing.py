"""The statements that look at all values there are, to see under which keys they are sealed, or to seal them anew.

As in `sql`, each with its index; the same test reads both. Pages come in the order of a table's primary key. Whoever
changes a task holds the lock on its run, so whoever has both rows of it is alone with all that belongs to it; what is
locked just now is passed over, so that nobody ever waits in a circle. A task that is over has no run.
"""

from __future__ import annotations

from typing import Final

# index: task_pkey. Its first rows and its last.
TASK_SAMPLE: Final = """
(SELECT id, tenant, principal, params FROM perdure.task WHERE seq > 0 ORDER BY seq LIMIT 4)
UNION ALL
(SELECT id, tenant, principal, params FROM perdure.task WHERE seq > 0 ORDER BY seq DESC LIMIT 4)"""

# index: task_pkey
RESEAL_TASK: Final = """
SELECT seq, '' AS key, version, params, result, error, message, idem_digest FROM perdure.task
WHERE seq > $1 ORDER BY seq LIMIT $2"""

# index: input_pkey
RESEAL_INPUT: Final = """
SELECT task_seq, key, state, request, response FROM perdure.input
WHERE (task_seq, key) > ($1, $3::text) ORDER BY task_seq, key LIMIT $2"""

# index: entry_pkey
RESEAL_ENTRY: Final = """
SELECT task_seq, place, value, value FROM perdure.entry
WHERE (task_seq, place) > ($1, $3::text) ORDER BY task_seq, place LIMIT $2"""

# index: event_pkey
RESEAL_EVENT: Final = """
SELECT task_seq, position, kind, detail, kind FROM perdure.event
WHERE (task_seq, position) > ($1, $3::int) ORDER BY task_seq, position LIMIT $2"""

# As many bytes as the rows of a page have. How long a text is can be told without fetching it, compressed or not.

# index: task_pkey
SIZES_TASK: Final = """
SELECT octet_length(params) + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
       + coalesce(octet_length(message), 0)
FROM perdure.task WHERE seq > $1 ORDER BY seq LIMIT $2"""

# index: input_pkey
SIZES_INPUT: Final = """
SELECT octet_length(request) + coalesce(octet_length(response), 0) FROM perdure.input
WHERE (task_seq, key) > ($1, $3::text) ORDER BY task_seq, key LIMIT $2"""

# index: entry_pkey
SIZES_ENTRY: Final = """
SELECT octet_length(value) FROM perdure.entry
WHERE (task_seq, place) > ($1, $3::text) ORDER BY task_seq, place LIMIT $2"""

# index: event_pkey
SIZES_EVENT: Final = """
SELECT octet_length(detail) FROM perdure.event
WHERE (task_seq, position) > ($1, $3::int) ORDER BY task_seq, position LIMIT $2"""

# index: task_pkey
RESEAL_OWNERS: Final = "SELECT seq, id, tenant, principal FROM perdure.task WHERE seq = ANY($1::bigint[])"

# index: run_pkey
RESEAL_RUNS: Final = "SELECT task_seq FROM perdure.run WHERE task_seq = ANY($1::bigint[]) FOR UPDATE SKIP LOCKED"

# index: task_pkey
RESEAL_TASKS: Final = """
SELECT seq FROM perdure.task
WHERE seq = ANY($1::bigint[]) AND (seq = ANY($2::bigint[]) OR status IN ('completed', 'failed', 'cancelled'))
FOR UPDATE SKIP LOCKED"""

# index: task_pkey. Each change of a task is another version, so this is what was read.
RESEALED_TASK: Final = """
UPDATE perdure.task AS task
SET params = given.params, result = given.result, error = given.error, message = given.message,
    idem_digest = given.idem_digest
FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
     AS given (seq, key, version, params, result, error, message, idem_digest)
WHERE task.seq = given.seq AND task.seq = ANY($1::bigint[]) AND task.version = given.version
RETURNING given.seq, given.key"""

# index: input_pkey. What was asked stays, and an answer comes once.
RESEALED_INPUT: Final = """
UPDATE perdure.input AS input SET request = given.request, response = given.response
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])
     AS given (task_seq, key, state, request, response)
WHERE input.task_seq = given.task_seq AND input.task_seq = ANY($1::bigint[]) AND input.key = given.key
  AND input.state = given.state
RETURNING given.task_seq, given.key"""

# index: entry_pkey
RESEALED_ENTRY: Final = """
UPDATE perdure.entry AS entry SET value = given.value
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) AS given (task_seq, place, before, value)
WHERE entry.task_seq = given.task_seq AND entry.task_seq = ANY($1::bigint[]) AND entry.place = given.place
  AND entry.value = given.before
RETURNING given.task_seq, given.place"""

# index: event_pkey. Events stay as they are until they are forgotten.
RESEALED_EVENT: Final = """
UPDATE perdure.event AS event SET detail = given.detail
FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[])
     AS given (task_seq, position, was, detail, kind)
WHERE event.task_seq = given.task_seq AND event.task_seq = ANY($1::bigint[]) AND event.position = given.position
RETURNING given.task_seq, given.position"""

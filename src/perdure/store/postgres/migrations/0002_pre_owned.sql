-- An owner's tasks, the newest first. Two things keep it for the one statement that asks for those, since a plan that was
-- made for an empty table would take any index that begins or ends alike: what is true of all, and a sum that is no column.
-- Writes wait while it is made. Who has millions of tasks makes it before, CONCURRENTLY; then it is left as it is.
CREATE INDEX IF NOT EXISTS task_owned ON perdure.task (tenant, principal, (seq + 0)) WHERE seq > 0;

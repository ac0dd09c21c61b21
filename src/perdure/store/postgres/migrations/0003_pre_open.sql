-- How many unfinished tasks an owner has. What is true of all keeps it for the one statement that asks for that, since
-- a plan that was made for an empty table would take any index. Writes wait while it is made. Who has millions of tasks
-- makes it before, CONCURRENTLY; then it is left as it is.
CREATE INDEX IF NOT EXISTS task_open ON perdure.task (tenant, principal)
    WHERE status IN ('working', 'input_required') AND seq > 0;

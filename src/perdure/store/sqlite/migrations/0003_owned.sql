-- An owner's tasks, the newest first.
CREATE INDEX task_owned ON task (tenant, principal, seq);

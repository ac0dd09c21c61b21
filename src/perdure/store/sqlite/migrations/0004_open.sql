-- How many unfinished tasks an owner has. Those that are over, of which there may be millions, have no entry here.
CREATE INDEX task_open ON task (tenant, principal) WHERE status IN ('working', 'input_required');

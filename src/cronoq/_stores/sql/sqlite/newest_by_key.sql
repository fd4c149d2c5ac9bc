SELECT id FROM cronoq_trio_tasks WHERE key = ? AND key <> '' ORDER BY id DESC LIMIT 1

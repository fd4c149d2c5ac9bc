SELECT t.id, t.pool, t.key, t.kind, t.priority, t.arrival, t.max_attempts, t.tenant,
       s.status, s.attempt, s.last_started, s.finished, s.message, s.output IS NOT NULL, o.id IS NOT NULL
FROM cronoq_trio_tasks AS t
LEFT JOIN cronoq_trio_states AS s ON s.id = t.id
LEFT JOIN cronoq_trio_outputs AS o ON o.id = t.id
WHERE t.id = ?

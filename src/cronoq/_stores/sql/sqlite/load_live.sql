SELECT l.id, t.pool, t.kind, t.key, t.priority, t.arrival, t.max_attempts, t.tenant,
       coalesce(t.spec, t.spec_1),
       s.status, s.attempt, s.due, s.first_started, s.last_started, s.message
FROM cronoq_trio_live AS l
LEFT JOIN cronoq_trio_tasks AS t ON t.id = l.id
LEFT JOIN cronoq_trio_states AS s ON s.id = l.id
WHERE l.id > ?
ORDER BY l.id
LIMIT ?

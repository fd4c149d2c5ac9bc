SELECT s.id, t.pool, t.key, s.status, s.finished
FROM cronoq_trio_states AS s
LEFT JOIN cronoq_trio_tasks AS t ON t.id = s.id
WHERE s.finished > 0 AND (s.finished, s.id) > (?, ?)
ORDER BY s.finished, s.id
LIMIT ?

SELECT s.id, coalesce(length(t.spec), 0) + coalesce(length(s.output), 0) + coalesce(length(o.output), 0)
FROM cronoq_trio_states AS s
LEFT JOIN cronoq_trio_tasks AS t ON t.id = s.id
LEFT JOIN cronoq_trio_outputs AS o ON o.id = s.id
WHERE s.finished > 0 AND s.finished < ?
ORDER BY s.finished
LIMIT ?

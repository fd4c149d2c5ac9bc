SELECT p.id, t.pool, t.key, s.status, s.finished
FROM (SELECT DISTINCT parent AS id FROM cronoq_trio_edges WHERE parent > 0 AND parent > ?1 ORDER BY parent) AS p
CROSS JOIN cronoq_trio_states AS s ON s.id = p.id
LEFT JOIN cronoq_trio_tasks AS t ON t.id = p.id
WHERE s.finished > 0 AND (s.finished, s.id) <= (?2, ?3)
LIMIT ?4

SELECT t.id, t.pool, t.key, t.kind, t.priority, t.arrival, t.max_attempts, t.tenant,
       s.status, s.attempt, s.last_started, s.finished, s.message, s.output IS NOT NULL, o.id IS NOT NULL
FROM cronoq_trio_states AS s
CROSS JOIN cronoq_trio_tasks AS t ON t.id = s.id
LEFT JOIN cronoq_trio_outputs AS o ON o.id = s.id
WHERE s.id > ?1 AND s.id <= ?2
  AND (?3 >> s.status) & 1
  AND (?4 IS NULL OR t.pool IN (SELECT value FROM json_each(?4)))
ORDER BY s.id
LIMIT ?5

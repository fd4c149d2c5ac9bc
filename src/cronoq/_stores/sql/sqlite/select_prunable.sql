SELECT s.finished, s.id,
       coalesce(length(t.spec), length(t.spec_1), 0) + coalesce(length(s.output), 0) + coalesce(length(o.output), 0),
       EXISTS (
           SELECT 1
           FROM cronoq_trio_edges AS e
           CROSS JOIN cronoq_trio_live AS l ON l.id = e.child
           WHERE e.parent = s.id AND e.parent > 0
       )
FROM cronoq_trio_states AS s
LEFT JOIN cronoq_trio_tasks AS t ON t.id = s.id
LEFT JOIN cronoq_trio_outputs AS o ON o.id = s.id
WHERE s.finished > 0 AND s.finished < ?1 AND (s.finished, s.id) > (?2, ?3)
ORDER BY s.finished, s.id
LIMIT ?4

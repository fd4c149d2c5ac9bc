SELECT r.id, r.name, r.cron, r.tz, r.overlap, r.dst_gap, r.dst_fold, r.configured, r.added,
       r.pool, r.kind, r.key, r.priority, r.tenant, r.template,
       f.through, f.local, f.last_task
FROM cronoq_trio_recurring AS r
LEFT JOIN cronoq_trio_fired AS f ON f.name = r.name
WHERE r.id > ?
ORDER BY r.id
LIMIT ?

SELECT finished, id
FROM cronoq_trio_states
WHERE finished > 0 AND finished >= ?
ORDER BY finished DESC, id DESC
LIMIT 1 OFFSET ?

SELECT child, position, parent, key, condition
FROM cronoq_trio_edges
WHERE child > ? AND child <= ?
ORDER BY child, position

UPDATE cronoq_trio_edges INDEXED BY cronoq_trio_edges_key
SET parent = ?, key = ''
WHERE child = ? AND key = ? AND parent = 0

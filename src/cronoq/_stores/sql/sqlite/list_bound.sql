SELECT id FROM cronoq_trio_states WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?

SELECT 1 FROM cronoq_trio_leader WHERE id = 1 AND epoch = ? AND holder = ?

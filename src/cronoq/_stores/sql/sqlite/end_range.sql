DELETE FROM cronoq_trio_live WHERE id BETWEEN ? AND ?

SELECT output, content_type FROM cronoq_trio_states WHERE id = ?

SELECT output, content_type FROM cronoq_trio_outputs WHERE id = ?

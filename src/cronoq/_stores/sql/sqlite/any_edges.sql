SELECT EXISTS (SELECT 1 FROM cronoq_trio_edges WHERE child > 0)

UPDATE cronoq_trio_leader SET holder = '', pid = 0 WHERE id = 1

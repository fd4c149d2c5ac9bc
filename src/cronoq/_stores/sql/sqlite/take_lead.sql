UPDATE cronoq_trio_leader SET epoch = ?, holder = ?, pid = ?, host = ?, claimed = ?, beat = ? WHERE id = 1

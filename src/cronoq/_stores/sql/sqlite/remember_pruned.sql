UPDATE cronoq_trio_leader SET pruned_through = max(pruned_through, ?) WHERE id = 1

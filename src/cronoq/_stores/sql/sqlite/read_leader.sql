SELECT epoch,
       max(pruned_through,
           coalesce((SELECT max(id) FROM cronoq_trio_tasks), 0),
           coalesce((SELECT max(id) FROM cronoq_trio_states), 0))
FROM cronoq_trio_leader
WHERE id = 1

"""Where a model's layers go when one slot isn't enough, chosen by predicted steps. Pure functions.

A setting has the layers (`model_layers`, or those of a well-known form, `known_models`), the slots and the
links between them (`plan_setting`). A plan cuts the layers into stages, gives each its slots, and says in how
many micro-batches a batch goes through and in what order (`parallel_plan`, `pipeline_order`). `stage_costs`
has what a stage takes on its slots: passes, shares, messages, the sum of its gradients, memory.
`pipeline_simulation` runs a step event by event; `plan_value` says what is finished a second when slots break
off now and then. `plan_space` lists all plans of a small setting, `plan_neighbours` goes from plan to plan in
a large one, and `plan_search` takes the best of what they give; `plan_reasons` says why, and what binds, and
`shadow_room` what copies of its stages would need beside it.

Plans that cut within a layer (`tensor=K` of jobs) aren't searched.
"""

"""How a model spreads over workers: each holds all of it (`data`), or some layers (`pipeline`, `sharded`).

chain              a model as a chain of layers, and why it can't be cut
task_layers        what a task's layers cost, for a search on another machine
task_survey        what a trainer that chooses the plan wants to know of a task and a slot
balancing          at which layers the stages begin: pure
blueprint          what the whole model is, of which each worker holds a stage
stage_model        the own stage of it, with the names of the whole
pipeline_training  what a worker keeps of a job whose model is divided, and its stage for a generation
slot_memory        memory that is left for a training, and what is given back of it
tensor_places      where tensors lie in bytes
shard_units        of a model in shards, layers whose values travel together
sharded_model      a worker's own units of it, and others' while they are computed
shard_stream       these on their way around the workers, and gradients back to their owners
shard_step         one worker's passes of all layers, of its part of the batch
stage_message      a tensor on its way between stages: its form, and its values by a codec
stage_links        tensors from stage to stage over the group's mesh, and numbers among all
stage_change       what a step changes a stage by, as bytes
stage_shadow       a copy of another stage's state, which follows it
own_past           a stage's own state one step ago
shadow_limits      whether shadows need too much memory, or too much of a step: pure
state_transfer     a stage's state on its way from one worker to another
shadowing          a generation's shadows: whose changes go where, and come from where
stage_step         one step: forward and backward passes, and one commit of all stages
stage_sum          the sum of a stage's gradients over its workers
stage_loop         a generation of a pipeline, from its first step to the job's end, or until it breaks
stage_files        its checkpoints and its model, of all stages' parts
whole_state        these in the one form of all plans, from parts and into parts
tensor_file        a safetensors file, written a tensor at a time
stage_run          a worker's part in a generation, as the trainer hears of it
"""

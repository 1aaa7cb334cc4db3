"""The three routes to an answer: ask a node that holds the model, split it over several, or compute here.

Which route is taken is a pure function of measured figures (`costs`, with what `estimator` measured); where
to cut is another (`peerloom.inference.cut`). `router` chooses; `remote`, `split` and `local` are the routes.
`replicas` are the nodes' inference servers as this client has met them, `pipeline` is a split model at work,
`decoding` continues text token by token, `ensemble` combines the answers of more than one node, and
`answer_evidence` tells the selector what became of the nodes that were asked.
"""

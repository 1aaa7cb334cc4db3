"""The three ways to an answer: ask a node that holds the model, split it over several, or fetch and run it.

Which way is taken is a pure function of measured figures (`costs`); where to cut is another
(`peerloom.inference.cut`). `servers` knows the nodes' inference servers as this client has met them,
`remote`, `pipeline` and `local` go the ways, `several` combines the answers of more than one node.
"""

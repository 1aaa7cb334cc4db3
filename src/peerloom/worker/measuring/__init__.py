"""What a worker measures for a trainer that chooses the method: links, codecs and layers.

The ways to the other ranks are measured between two steps, by the mesh's own connections (`link_probe`),
while all pause; codecs on this node beside the training, in a thread of its own (`codec_speed`,
`sync_measuring`). Layers are timed in the training's own steps (`layer_clock`).
"""

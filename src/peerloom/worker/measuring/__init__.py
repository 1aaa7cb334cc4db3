"""What a worker measures for a trainer that chooses the method: links, codecs and layers.

All of it happens beside the training, in a thread of its own (`sync_measuring`): the ways to the other ranks
by the mesh's own connections (`link_probe`), codecs on this node (`codec_speed`). Layers are timed in the
training's own steps (`layer_clock`).
"""

"""What a worker measures: links, codecs and layers, for itself and for a trainer that chooses the method.

The ways to the other ranks are measured between two steps, by the mesh's own connections (`link_probe`,
`together_probe`), while all pause. By these connections are paced (`link_pacing`, with what ranks tell each
other in `rate_news`). Codecs are measured on this node beside the training, in a thread of its own
(`codec_speed`, `sync_measuring`), and layers timed in the training's own steps (`layer_clock`).
`node_measures` has what outlives a generation, and `generation_measuring` what a job's method asks for.
"""

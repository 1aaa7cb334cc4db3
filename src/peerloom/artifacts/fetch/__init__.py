"""The artifact exchange: an artifact comes in chunks from several peers at once, and is checked twice.

    fetcher         `Fetcher(find_holders).fetch(digest, destination)`: all of it together
    peers           the holders of one fetch: found, met, dropped, met again
    sources         a holder that told its manifest, and the channels to holders
    chunk_schedule  which chunk to ask of whom next: a pure function of what is known
    chunks          carries those decisions out, until all chunks are here
    transports      how a chunk's bytes come here: by gRPC, or by plain TCP from a `bulk_server`
    partial         what has come so far, on disk, so that nobody's death costs it
    outcomes        what comes of a fetch: the artifact, and evidence about its holders

A manifest follows from the bytes, so honest holders agree on it. Where they don't, the manifest of most
of them is tried first; when the whole has the digest that was asked for, the others' lied, and else its own
tellers did. A chunk that doesn't have its digest ends the trust in its sender at once. Nothing is visible
under a digest before the whole was verified.
"""

"""The artifact exchange: an artifact comes in chunks from several peers at once, and is checked twice.

    manifest   what an artifact consists of; each chunk has a SHA-256, the whole one names it
    schedule   which chunk to ask of whom next: a pure function of what is known
    partial    what has come so far, on disk, so that nobody's death costs it
    lines      ways to a chunk's bytes: gRPC, or plain TCP beside it (`bulk`)
    fetch      `Fetcher(find_holders).fetch(digest, destination)`: all of it together
    holders    who holds an artifact, as the registry knows
    stock      what a service keeps: fetches each artifact once, however many ask

A manifest follows from the bytes, so honest holders agree on it. Where they don't, the manifest of most
of them is tried first; when the whole has the digest that was asked for, the others' lied, and else its own
tellers did. A chunk that doesn't have its digest ends the trust in its sender at once. Nothing is visible
under a digest before the whole was verified.
"""

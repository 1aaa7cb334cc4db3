"""Point to point between the workers of a generation, over sockets of their own: one trip a message.

frames         a message's header: which exchange and phase it belongs to, and how long it is
mesh_link      `MeshLink`: one connection: what waits to be sent, and what comes
connecting     `MeshMeeting`: one connection to each other member, both ends of which have proved themselves
open_exchange  `OpenExchange`: what an exchange still waits for
early          `EarlyMessages`: what came before its exchange has begun here
mesh           `Mesh`: exchanges of messages, completed by one thread that waits for all connections
greeting       short messages before all others, where connections were made on a busy line
pacing         `paces`: how fast each connection may send, so that none takes the others' part
"""

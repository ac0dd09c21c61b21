"""Where durable tasks live: one protocol in domain verbs, and its implementations.

`base` is the contract, `memory` the reference model that tests compare every backend with, `sqlite` the embedded
default. Only the composition root (`perdure.ops`) picks a backend; the engine and the wire see the protocol.
"""

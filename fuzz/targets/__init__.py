"""What is fuzzed, each target a module of its own: which cases there are, and what is done with one."""

from __future__ import annotations

from collections.abc import Mapping

from . import answers, callbacks, envelopes, files, framing, handshake, keys, lawful, listening
from .base import Target

__all__ = ["TARGETS", "Target"]

TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        framing.TARGET,
        envelopes.TARGET,
        lawful.TARGET,
        answers.TARGET,
        listening.TARGET,
        callbacks.TARGET,
        keys.TARGET,
        handshake.TARGET,
        files.TARGET,
    )
}

"""The keys that values are sealed under, as the commands find them: in the environment or in a file, never in argv.

What is on a command line is there for all users of the machine to see, and stays in a shell's history.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from perdure.domain.errors import ConfigurationError
from perdure.store.keys import KEYS, KEYS_FILE, KeyRing

__all__ = ["from_environment"]

logger = logging.getLogger(__name__)


def from_environment(environment: Mapping[str, str] = os.environ) -> KeyRing | None:
    """The ring that the environment names; None if it names none.

    Raises:
        ConfigurationError: it names two, or what it names is none; the message shows no part of a key.
    """
    text, file = environment.get(KEYS), environment.get(KEYS_FILE)
    if text is not None and file is not None:
        raise ConfigurationError(f"there are both {KEYS} and {KEYS_FILE} in the environment: keep one of them")
    if text is None and file is None:
        return None
    name = KEYS if file is None else KEYS_FILE
    if not (text or file):
        # A secret that did not get here looks like this, and must not become a store in the clear.
        raise ConfigurationError(f"{name} is there and empty: {_EMPTY[name]}, or take it out of the environment")
    try:
        return KeyRing.parse(text or _read(Path(file or "")))
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


_EMPTY: Final = {
    KEYS: "put the keys into it, or the word `clear` to store what is in tasks in the clear",
    KEYS_FILE: "name the file of the keys in it",
}


def _read(path: Path) -> str:
    try:
        if path.stat().st_mode & stat.S_IROTH:
            logger.warning("%s may be read by every user of this machine: chmod o-r it", path)
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        pass  # raised outside: what Python says of it quotes the file, and would hang on as its context
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from None
    raise ConfigurationError(f"{path} is no text")

"""The keys that values are sealed under, as the commands find them: in the environment or in a file, never in argv.

What is on a command line is there for all users of the machine to see, and stays in a shell's history.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

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
    if text and file:
        raise ConfigurationError(f"there are both {KEYS} and {KEYS_FILE} in the environment: keep one of them")
    if not text and not file:
        return None
    try:
        return KeyRing.parse(text or _read(Path(file or "")))
    except ConfigurationError as error:
        raise ConfigurationError(f"{KEYS if text else KEYS_FILE}: {error}") from None


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

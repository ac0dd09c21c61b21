"""What the tests of this room share."""

import asyncpg

from perdure.domain.errors import StoreUnusable
from perdure.store.postgres import faults, schema, url

SECRET = "xyzzyplugh"
PATIENCE = 20.0
NO_MATCH = asyncpg.TargetServerAttributeNotMatched


async def refusal(text: str, *, within: float = PATIENCE) -> str:
    """What is said when a store at that URL is opened, after the URL; empty if nothing is wrong."""
    target = url.parse(text)
    try:
        await _open(target, within)
    except StoreUnusable as error:
        line = str(error)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError, NO_MATCH) as error:
        line = str(faults.unusable(error, target))
    else:
        return ""
    assert "\n" not in line
    assert SECRET not in line
    assert line.startswith(target.shown)
    return line.removeprefix(target.shown).strip()


async def _open(target: url.Target, within: float) -> None:
    connection = await target.connect(within)
    try:
        await schema.check(connection, target)
    finally:
        connection.terminate()

"""What must never be asked in a form: a secret, which whoever relays the form would read.

The specification forbids it (*Elicitation, Security Considerations*: form mode must not request passwords, API keys,
access tokens or payment credentials), and names the way that there is: a page of one's own, `elicit_url`. So a form
that asks for one is refused when it is asked, and where its model can be told from the source already when the tool is
declared. And such a page is on https, or on this machine while one develops.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, PydanticUserError

from perdure.domain.errors import ConfigurationError
from perdure.domain.hosts import is_this_machine

from .names import names_for

__all__ = ["check_forms", "check_schema", "check_url"]

_SECRET: Final = re.compile(
    r"(?:.*_)?(?:password|passwd|passphrase|passcode|pin|otp|secret|api_?key|(?:access|auth|refresh|bearer)_?token|"
    r"private_?key|credit_?card|card_?number|cv[vc])",
)
"""Names of fields that hold one, in snake case."""
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-\s]+")
_SCHEMA: Final = {"elicit": 2, "Elicit": 1}
"""What asks a form, and which of its arguments is the model."""


def check_schema(schema: dict[str, Any]) -> None:
    """That a form asks for no secret: by the format "password", by `writeOnly`, or by the name of a text field.

    Raises:
        ConfigurationError: it does; the message names the field.
    """
    fields = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    for name, field in fields.items():
        named = _SECRET.fullmatch(_WORDS.sub("_", name).lower()) is not None
        if any(_is_secret(kind, named=named) for kind in (field, *field.get("anyOf", ()))):
            raise ConfigurationError(
                f"The form asks for {name!r}, and a form must ask for no secret, since whoever relays it reads the "
                "answer: let the person enter it on a page of yours, by elicit_url"
            )


def _is_secret(field: dict[str, Any], *, named: bool) -> bool:
    """`named`: as one. What an optional field is, it is in an `anyOf`."""
    said = field.get("format") == "password" or field.get("writeOnly") is True
    return said or (named and field.get("type") == "string")


def check_url(url: str) -> None:
    """That a page may be shown to a person: on https, or on this machine; and with no credentials in its address.

    Raises:
        ConfigurationError: it may not.
    """
    try:
        parts = urlsplit(url)
        host, named = parts.hostname, parts.username is not None
    except ValueError:
        parts, host, named = urlsplit(""), None, False
    if not host or parts.scheme not in ("https", "http") or (parts.scheme == "http" and not is_this_machine(host)):
        raise ConfigurationError("The page of an elicit_url must be on https (http only on this machine)")
    if named:
        raise ConfigurationError("The page of an elicit_url must have no user name or password in its address")


def check_forms(fn: Callable[..., Any]) -> None:
    """The same as `check_schema` for the forms in the source of `fn`, as far as their models can be told from it.

    Raises:
        ConfigurationError: as there, with the model's name.
    """
    for model in _models(fn):
        try:
            check_schema(model.model_json_schema())
        except PydanticUserError:  # it has no schema; whoever asks it hears of that
            continue
        except ConfigurationError as error:
            raise ConfigurationError(f"{fn.__name__}, {model.__name__}: {error}") from None


def _models(fn: Callable[..., Any]) -> Iterator[type[BaseModel]]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    except (OSError, TypeError, SyntaxError):  # made by something else than a file
        return
    names = names_for(fn)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        found = _looked_up(_form(call), names)
        if isinstance(found, type) and issubclass(found, BaseModel):
            yield found


def _form(call: ast.Call) -> ast.expr | None:
    """The expression for the model, if the call asks a form."""
    called = call.func
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if name not in _SCHEMA:
        return None
    by_name = {keyword.arg: keyword.value for keyword in call.keywords}
    place = _SCHEMA[name]
    return call.args[place] if len(call.args) > place else by_name.get("schema")


def _looked_up(expression: ast.expr | None, names: dict[str, Any]) -> object:
    match expression:
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=value, attr=name):
            return getattr(_looked_up(value, names), name, None)
        case _:
            return None

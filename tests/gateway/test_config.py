"""The file of a gateway: what it may say, and that everything wrong with it is said at once."""

from pathlib import Path

import pytest

from perdure.domain.errors import ConfigurationError
from perdure.gateway.backends import Naming
from perdure.gateway.breaker import BreakerBounds
from perdure.gateway.config import load, parse
from perdure.gateway.config_identity import ExchangeConfig, ForwardConfig, KeyConfig, SecretPlace, SignedConfig
from perdure.gateway.health import HealthBounds
from perdure.gateway.retrying import Safe

AUTH = '[auth]\nverifier = "a:b"\nissuer = "https://login.example"\nresource = "https://tools.example"\n'
SMALLEST = '[gateway]\nstore = "sqlite:///routes.db"\n[backends.files]\nurl = "http://127.0.0.1:9/mcp"\n'


def errors(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as found:
        parse(text, "gateway.toml")
    first, *rest = str(found.value).splitlines()
    assert first == "gateway.toml can't be used:"
    return [line.strip() for line in rest]


def test_the_smallest_file_has_a_store_and_a_backend_whose_name_is_its_prefix() -> None:
    found = parse(SMALLEST)
    (backend,) = found.backends
    assert (found.name, found.store, found.auth) == ("perdure-gateway", "sqlite:///routes.db", None)
    assert (backend.name, backend.tools, backend.prompts) == ("files", Naming("files_"), Naming("files_"))
    assert backend.identity is None


def test_everything_that_may_be_said_is_understood() -> None:
    found = parse(
        SMALLEST
        + """
        prefix = ""
        addresses = ["file://"]
        concurrency = 7
        tools = { search = "find" }
        timeouts = { request = "2m", connect = 0.5 }
        identity = { kind = "signed", audience = "files", key = "k1", secret_env = "SECRET" }
        breaker = { failures = 3, part = 1, window = "1m", pause = "2s", longest = "2s" }
        retry = { tries = 1, first = "1s" }
        health = { every = "5s", within = 1, failures = 4 }
        [auth]
        verifier = "company.auth:verifier"
        issuer = "https://login.example"
        resource = "https://tools.example/mcp"
        scopes = ["tools"]
        tenant_claim = "org"
        [limits]
        subscriptions = 5
        subscriptions_per_owner = 2
        [routes]
        retention = "2 days"
        give_up = "30 days"
        """
    )
    (backend,) = found.backends
    assert backend.tools == Naming(mapped={"search": "find"})
    assert backend.prompts == Naming("")
    assert (backend.addresses, backend.concurrency) == (("file://",), 7)
    assert (backend.timeouts.request, backend.timeouts.connect) == (120.0, 0.5)
    assert backend.identity == SignedConfig("files", None, (KeyConfig("k1", SecretPlace("SECRET", None), pair=False),))
    assert found.auth is not None
    assert (found.auth.scopes, found.auth.tenant_claim) == (("tools",), "org")
    assert (found.subscriptions, found.subscriptions_per_owner) == (5, 2)
    assert (found.retention, found.give_up) == (172_800.0, 2_592_000.0)
    assert backend.breaker == BreakerBounds(3, 1.0, 60.0, 2.0, 2.0)
    assert backend.retry == Safe(tries=1, first=1.0)
    assert backend.health == HealthBounds(5.0, 1.0, 4)


@pytest.mark.parametrize(
    ("table", "meant"),
    [
        ('kind = "none"', None),
        ('kind = "forward"\naudience = "https://it"', ForwardConfig("https://it")),
        (
            'kind = "exchange"\nendpoint = "https://as/token"\nclient_id = "g"\nclient_secret_file = "s"\nscope = "x"',
            ExchangeConfig("https://as/token", "g", SecretPlace(None, "s"), None, None, "x"),
        ),
        (
            'kind = "signed"\naudience = "it"\nkey = "k"\nprivate_key_file = "key.pem"\nissuer = "front"',
            SignedConfig("it", "front", (KeyConfig("k", SecretPlace(None, "key.pem"), pair=True),)),
        ),
        (
            'kind = "signed"\naudience = "it"\n'
            'keys = [{ id = "new", private_key_file = "new.pem" }, { id = "old", secret_env = "OLD" }]',
            SignedConfig(
                "it",
                None,
                (
                    KeyConfig("new", SecretPlace(None, "new.pem"), pair=True),
                    KeyConfig("old", SecretPlace("OLD", None), pair=False),
                ),
            ),
        ),
    ],
)
def test_each_way_of_passing_on_who_asks_can_be_said(table: str, meant: object) -> None:
    found = parse(f"{AUTH}{SMALLEST}[backends.files.identity]\n{table}\n")
    assert found.backends[0].identity == meant


@pytest.mark.parametrize(
    "table",
    [
        'kind = "forward", audience = "https://it"',
        'kind = "exchange", endpoint = "https://as/token", client_id = "g", client_secret_file = "s"',
    ],
)
def test_nobody_is_told_who_asks_by_tokens_that_no_client_brings(table: str) -> None:
    said = ["backends.files.identity: needs the clients' tokens: write [auth]"]
    assert errors(f"{SMALLEST}identity = {{ {table} }}\n") == said


def test_a_store_that_is_said_elsewhere_need_not_be_in_the_file_and_goes_before_it() -> None:
    without = SMALLEST.replace('store = "sqlite:///routes.db"', "")
    for text in (SMALLEST, without, without.replace("[gateway]", "")):
        assert parse(text, store="memory").store == "memory"
    assert errors(without) == ["gateway.store: is missing"]


def test_everything_that_is_wrong_is_said_at_once_and_with_its_place() -> None:
    said = errors(
        """
        port = 3
        [gateway]
        nmae = "front"
        page = 0
        [auth]
        verifier = "nonsense"
        issuer = "login"
        resource = "https://tools.example"
        [backends."a b"]
        url = "ftp://it"
        """
    )
    assert {error.partition(":")[0] for error in said} == {
        "port",
        "gateway.nmae",
        "gateway.page",
        "gateway.store",
        "auth.verifier",
        "auth.issuer",
        "backends.a b",
        "backends.a b.url",
    }


def test_a_mistake_is_said_with_its_place() -> None:
    cases = {
        "[gateway]\n": ["gateway.store: is missing", "backends: there is none: write [backends.NAME] with its url"],
        SMALLEST + "wrong = 1\n": ["backends.files.wrong: there is no such key"],
        SMALLEST + "concurrency = true\n": ["backends.files.concurrency: is True: write a whole number, at least 1"],
        SMALLEST + "prefix = 3\n": ["backends.files.prefix: write a text, which may be empty"],
        SMALLEST + 'prefix = "my files/"\n': [
            "backends.files.prefix: names of tools have letters, digits, '_', '-' and '.'"
        ],
        SMALLEST + 'tools = { "a b" = "x" }\nprompts = { "a b" = "x" }\n': [
            "backends.files.tools: 'a b': a tool's name is 1 to 128 letters, digits, '_', '-' and '.'"
        ],
        SMALLEST + "timeouts = 3\n": ["backends.files.timeouts: write a table"],
        SMALLEST + 'addresses = "file://"\n': ["backends.files.addresses: write a list of texts"],
        SMALLEST + "tools = { a = 1 }\n": ["backends.files.tools: write EXPOSED = 'NAME THERE' for each"],
        SMALLEST + 'tools = { a = "x", b = "x" }\n': ["backends.files.tools: 'x' is exposed under two names"],
        SMALLEST + 'identity = { kind = "magic" }\n': [
            "backends.files.identity.kind: is 'magic': write signed, exchange, forward or none"
        ],
        SMALLEST + 'identity = { kind = "signed", audience = "it", key = "k" }\n': [
            "backends.files.identity.secret_env: say where the secret is: secret_env or secret_file, one of them"
        ],
    }
    signed = 'identity = { kind = "signed", audience = "it", keys = '
    cases |= {
        SMALLEST + signed + "[] }\n": ["backends.files.identity.keys: write a list of tables"],
        SMALLEST + signed + '[{ id = "k", secret_env = "A" }, { id = "k", secret_env = "B" }] }\n': [
            "backends.files.identity.keys[1].id: there is another key 'k'"
        ],
        SMALLEST + signed + '[{ secret_env = "A", more = 1 }] }\n': [
            "backends.files.identity.keys[0].id: is missing",
            "backends.files.identity.keys[0].more: there is no such key",
        ],
        SMALLEST + "breaker = { part = 2 }\n": [
            "backends.files.breaker.part: is 2: write a number above 0, and at most 1"
        ],
        SMALLEST + 'breaker = { pause = "1m" }\n': ["backends.files.breaker.longest: is shorter than `pause`"],
        SMALLEST + 'retry = { first = "1m" }\n': ["backends.files.retry.longest: is shorter than `first`"],
    }
    for text, expected in cases.items():
        assert errors(text) == expected


def test_two_backends_with_one_prefix_one_name_or_one_address_are_refused() -> None:
    second = '[backends.other]\nurl = "http://127.0.0.1:9/mcp"\n'
    assert errors(SMALLEST + second + 'prefix = "files_"\n') == [
        "backends.other.tools: the prefix 'files_' is that of files already",
        "backends.other.prompts: the prefix 'files_' is that of files already",
    ]
    mapped = 'tools = { a = "x" }\n'
    assert errors(SMALLEST + mapped + second + mapped) == [
        "backends.other.tools: the name 'a' is that of files already"
    ]
    claimed = 'addresses = ["file://"]\n'
    assert errors(SMALLEST + claimed + second + claimed) == [
        "backends.other.addresses: 'file://' is that of files already"
    ]


def test_durations_are_as_everywhere() -> None:
    (error,) = errors(SMALLEST + '[routes]\nretention = "soon"\n')
    assert error.startswith("routes.retention: 'soon' is no duration; write for example")


def test_what_is_no_toml_and_what_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is no TOML"):
        parse("[gateway")
    with pytest.raises(ConfigurationError, match="can't be read"):
        load(tmp_path / "none.toml")

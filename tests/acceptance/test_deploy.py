"""`deploy/`: its files can be read by those they are for, and what they start stays up while its parts go down."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from perdure import Limits
from tests.acceptance.deployment import (
    BIN,
    DEPLOY,
    UNITS,
    Deployment,
    balancing,
    command,
    deployed,
    migrated,
    on_loopback,
    secret_apart,
    unit,
)
from tests.acceptance.support import attended, effects, free_port, store_url
from tests.acceptance.workers import launch
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import envelope, headers, meta
from tests.wire.support import hosting

ROUNDS: Final = 12
SERVER, WORKER, GATEWAY = "perdure-server@", "perdure-worker@", "perdure-gateway@"


# -- what runs ---------------------------------------------------------------------------------------------------------


def test_the_schema_is_migrated_first_and_a_second_time_does_nothing(empty_database: str) -> None:
    env = secret_apart(empty_database)
    assert migrated(env).startswith("applied 0001 ")
    assert migrated(env) == f"{env['PERDURE_STORE']} is up to date\n"


async def test_any_server_answers_anything(database: str, tmp_path: Path) -> None:
    async with deployed(tmp_path, database) as deployment:
        client = deployment.client
        pids = {(await client.call("who")).result["structuredContent"]["result"] for _ in range(ROUNDS)}
        assert pids == {process.pid for process in deployment.of(SERVER)}
        for number in range(ROUNDS):
            await client.until(await client.begin(str(number)), "completed")
        hops = deployment.balancer.hops
        for method in ("tools/call", "tasks/get"):
            asked = {servers for each, servers, _ in hops if each == method}
            assert asked == {f"127.0.0.1:{process.port}" for process in deployment.of(SERVER)}, method
        assert {each.pid for each in effects(tmp_path)} <= {process.pid for process in deployment.of(WORKER)}
        assert not client.retried
        await events_come_at_once(deployment, tmp_path / "gate")
        await what_is_not_meant_for_the_servers_does_not_get_there(deployment)


async def events_come_at_once(deployment: Deployment, gate: Path) -> None:
    """The first event is here before the tool may go on."""
    params = {"name": "counted", "arguments": {"gate": str(gate)}, "_meta": {**meta(), "progressToken": "mine"}}
    body = envelope("tools/call", params)
    async with (
        asyncio.timeout(PATIENCE),
        deployment.client.http.stream("POST", deployment.client.url, json=body, headers=headers(body)) as response,
    ):
        assert response.headers["content-type"] == "text/event-stream"
        lines = (json.loads(line[6:]) async for line in response.aiter_lines() if line.startswith("data: "))
        assert (await anext(lines))["params"] == {"progressToken": "mine", "progress": 1, "total": 2}
        gate.touch()  # noqa: ASYNC240 - empty
        assert (await anext(lines))["result"]["structuredContent"] == {"result": "done"}


async def what_is_not_meant_for_the_servers_does_not_get_there(deployment: Deployment) -> None:
    client = deployment.client
    root = client.url.removesuffix("/mcp")
    assert (await client.http.get(f"{root}/health")).status_code == 404
    assert (await client.http.get(f"{root}/repeatable")).status_code == 404
    foreign = {"origin": "https://elsewhere.example"}
    assert (await client.exchange(envelope("server/discover"), foreign)).status == 403
    assert (await client.exchange(envelope("server/discover"), {"origin": "https://tasks.example.com"})).status == 200
    for size, status in ((3 << 20, 200), (5 << 20, 413)):  # 200: a server says that it has no such tool
        call = envelope("tools/call", {"name": "none", "arguments": {"text": "x" * size}})
        assert (await client.exchange(call)).status == status


@asynccontextmanager
async def load(deployment: Deployment) -> AsyncGenerator[list[str]]:
    """Tasks that are begun, and all polled again and again, for as long as the block lasts: their ids."""
    begun: list[str] = []
    over = False

    async def begin() -> None:
        while not over:
            begun.append(await deployment.client.begin(f"load {len(begun)}"))
            await asyncio.sleep(0.1)

    async def poll() -> None:
        while not over:
            for task_id in begun[-5:]:
                await deployment.client.get(task_id)
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        for each in (begin, poll):
            group.create_task(each())
        try:
            await eventually(lambda: len(begun) > 10, "there is load")
            yield begun
        finally:
            over = True


async def nothing_is_lost(deployment: Deployment, begun: list[str]) -> None:
    """Each is done, and was done once."""
    tokens = {
        task_id: (await deployment.client.until(task_id, "completed"))["result"]["structuredContent"]["token"]
        for task_id in begun
    }
    ends = effects(deployment.folder, event="end")
    assert len(tokens) == len(begun)
    assert sorted((end.task, end.token) for end in ends) == sorted(tokens.items())


@pytest.mark.timeout(180)  # nine processes start
async def test_a_rolling_restart_loses_nothing_and_a_server_that_is_killed_is_not_missed(
    database: str, tmp_path: Path
) -> None:
    """A call that is under way in a server that is killed has to be made again; a poll only if its response began."""
    async with deployed(tmp_path, database) as deployment:
        async with load(deployment) as begun:
            for each in tuple(deployment.processes):
                await deployment.restart(*each)
                await more_than(5, begun)
            assert set(deployment.client.retried) <= {"tools/call"}
            assert deployment.client.broken == []
            deployment.client.retried.clear()
            victim, other = deployment.of(SERVER)
            await victim.kill()
            await more_than(20, begun)
        await nothing_is_lost(deployment, begun)
        assert all(each.attempt == 1 for each in effects(tmp_path))
        assert deployment.client.retried in ([], ["tools/call"])
        assert sorted(deployment.client.broken) in ([], ["tasks/get"], ["tasks/get", "tools/call"], ["tools/call"])
        last = [servers.split(",")[-1] for _, servers, _ in deployment.balancer.hops[-10:]]
        assert set(last) == {f"127.0.0.1:{other.port}"}


async def more_than(count: int, begun: list[str]) -> None:
    before = len(begun)
    await eventually(lambda: len(begun) > before + count, "calls go on")


# -- what is written ---------------------------------------------------------------------------------------------------


# Names of containers are looked up again and again: nginx 1.27.3 can do that, and Debian's may be older.
IN_CONTAINERS: Final = {
    "listen 8080": f"listen 127.0.0.1:{free_port()}",
    "resolver 127.0.0.11 valid=2s;": "",
    "server-1:8000 resolve": "127.0.0.1:8001",
    "server-2:8000 resolve": "127.0.0.1:8002",
}


@pytest.mark.parametrize("site", ["nginx/perdure.conf", "compose/nginx.conf"])
def test_nginx_takes_its_configuration(site: str) -> None:
    changes = IN_CONTAINERS if site.startswith("compose") else on_loopback(free_port())
    with balancing(site, changes, 0) as balancer:
        balancer.test()


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for path in UNITS.glob("*.service"):
        text = path.read_text("utf-8").replace("/opt/perdure/bin", str(BIN)).replace("/usr/bin/curl", "/bin/true")
        (tmp_path / path.name).write_text(text)
    if analyze := shutil.which("systemd-analyze"):  # else the others read them
        units = ["migrate", "server@8001", "worker@1", "gateway@8000"]
        names = [f"perdure-{each}.service" for each in units]
        done = subprocess.run(
            [analyze, "verify", "--man=no", *(tmp_path / name for name in names)],
            env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, [line for line in done.stderr.splitlines() if "perdure" in line]) == (0, [])


@pytest.mark.parametrize("name", [SERVER, WORKER, GATEWAY])
def test_a_unit_waits_for_the_migrations_and_for_the_end_of_what_runs(name: str) -> None:
    settings = unit(name)
    for setting in ("Wants", "After"):
        assert "perdure-migrate.service" in settings[setting][0].split()
    assert float(settings["TimeoutStopSec"][0]) > 25
    assert (settings["KillMode"], settings["Restart"]) == (["mixed"], ["always"])


def test_no_secret_is_among_the_arguments_or_in_a_file() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            assert "://perdure:" not in path.read_text("utf-8"), path
    for name in (SERVER, WORKER, GATEWAY, "perdure-migrate"):
        assert not {"PERDURE_STORE", "PGPASSWORD"} & set("".join(unit(name)["ExecStart"]).split("$"))


def test_a_shell_reads_the_environment_of_the_units_as_they_do_whatever_is_in_it(tmp_path: Path) -> None:
    """The line of the README that has a command find the store, with a URL that asks for TLS and a good password."""
    (line,) = re.findall(r"`(set -a; .*); perdure status`", (DEPLOY / "README.md").read_text("utf-8"))
    more = "?sslmode=verify-full&sslrootcert=/etc/ssl/db-ca.pem"
    text = (UNITS / "perdure.env").read_text("utf-8")
    (tmp_path / "perdure.env").write_text(text.replace("127.0.0.1/perdure", f"127.0.0.1/perdure{more}"))
    (secret,) = re.findall(r"edit: (PGPASSWORD=\S+),", (DEPLOY / "README.md").read_text("utf-8"))
    (tmp_path / "secrets.env").write_text(secret.replace("…", "a$b & c;d") + "\n")
    script = line.replace("/etc/perdure", str(tmp_path)) + "; printenv PERDURE_APP PERDURE_STORE PGPASSWORD"
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, env={"PATH": os.defpath})
    store = f"postgresql://perdure@127.0.0.1/perdure{more}"
    assert (said.stdout.splitlines(), said.stderr) == (["reports:mcp", store, "a$b & c;d"], "")


def test_nginx_lets_everything_through_that_the_servers_take() -> None:
    """What it refuses is final to whoever calls, and a callback may carry a result of a MiB and what is around it."""
    for path in (DEPLOY / "nginx/routes.conf", DEPLOY / "nginx/perdure.conf", DEPLOY / "compose/nginx.conf"):
        bounds = re.findall(r"client_max_body_size (\d+)m;", path.read_text("utf-8"))
        assert all(int(bound) << 20 == Limits().request_body for bound in bounds), path
        assert bounds or path.name != "routes.conf"


def test_all_units_are_shut_in_alike() -> None:
    """What one of them may not do, the others may not either, but for what only long-lived ones have use for."""

    def hardening(name: str) -> list[str]:
        _, _, rest = (UNITS / f"{name}.service").read_text("utf-8").partition("\nNoNewPrivileges=")
        return [line for line in rest.splitlines() if line and not line.startswith(("[", "WantedBy", "ProtectProc"))]

    assert hardening(SERVER) == hardening(WORKER) == hardening(GATEWAY) == hardening("perdure-migrate")
    assert len(hardening(SERVER)) > 15


async def test_the_unit_of_a_gateway_starts_one_on_the_store_of_the_environment(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "gateway.toml"
    file.write_text('[backends.away]\nurl = "http://127.0.0.1:9/mcp"\n')
    words = [str(file) if word == "/etc/perdure/gateway.toml" else word for word in command(GATEWAY, str(port), {})]
    started = await launch(tmp_path, *words, port=port, env={"PERDURE_STORE": store_url(tmp_path)})
    async with attended(started) as (_, client):
        assert (await client.http.get(client.url.replace("/mcp", "/health"))).text == "ok\n"


@pytest.mark.parametrize("name", [SERVER, GATEWAY])
def test_a_unit_asks_no_proxy_for_the_health_of_its_own_server(name: str) -> None:
    words = command(name, "8001", {"PERDURE_HOST": "127.0.0.1"}, "ExecStartPost")
    assert words[words.index("--noproxy") + 1] == "*"


# -- the compose file --------------------------------------------------------------------------------------------------


@pytest.fixture
def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text("utf-8"))


def test_compose_starts_two_of_each_after_the_migrations(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"database", "migrate", "server-1", "server-2", "worker-1", "worker-2", "balancer"}
    for name in ("server-1", "server-2", "worker-1", "worker-2"):
        service = services[name]
        assert service["command"][0] == {"server": "serve", "worker": "worker"}[name.partition("-")[0]]
        assert service["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
        assert service["stop_grace_period"] == "30s"
    assert all("--no-worker" in services[name]["command"] for name in ("server-1", "server-2"))
    assert services["migrate"]["command"] == ["migrate"]
    assert services["migrate"]["depends_on"] == {"database": {"condition": "service_healthy"}}


def test_compose_opens_no_port_to_the_network_and_holds_no_secret(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert published == {"balancer": ["127.0.0.1:8080:8080"]}
    assert compose["networks"]["data"] == {"internal": True}
    assert compose["services"]["database"]["networks"] == ["data"]
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            assert value.startswith("${") or name in {"PERDURE_STORE", "POSTGRES_USER", "POSTGRES_DB"}, name


def well(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok\n")


async def test_compose_asks_no_proxy_for_the_health_of_its_own_servers(
    compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker can be told to give every container the proxies of a company."""
    kind, *words = compose["services"]["server-1"]["healthcheck"]["test"]
    assert (kind, words[0]) == ("CMD", "python")
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    async with hosting(Starlette(routes=[Route("/health", well)])) as (_, url):
        asked = [word.replace("http://127.0.0.1:8000", url) for word in words[1:]]
        assert asked != words[1:]
        process = await asyncio.create_subprocess_exec(sys.executable, *asked)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0


def test_what_compose_and_its_image_name_is_there(compose: dict[str, Any]) -> None:
    folder = DEPLOY / "compose"
    for volume in compose["services"]["balancer"]["volumes"]:
        assert (folder / volume.split(":")[0]).is_file()
    build = compose["services"]["server-1"]["build"]
    root = (folder / build["context"]).resolve()
    dockerfile = root / build["dockerfile"]
    allowed = (dockerfile.with_name("Dockerfile.dockerignore")).read_text().splitlines()
    for line in dockerfile.read_text("utf-8").splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (root / source).exists(), source
                assert f"!{source}" in allowed, source
    needed = {
        line.partition("=")[0] for line in (folder / "example.env").read_text().splitlines() if line[:1].isupper()
    }
    assert needed == {"POSTGRES_PASSWORD", "REQUEST_STATE_KEY", "TOKENS", "PERDURE_KEYS"}

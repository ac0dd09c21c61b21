// The tasks package for the TypeScript SDK's client calls a tool, or goes on with a task, and answers what it asks.
//
//     node ext_tasks.mjs FOLDER URL call TOOL [LEAVE]   FOLDER: where the packages are installed
//     node ext_tasks.mjs FOLDER URL resume REFERENCE
//
// LEAVE: a status at which it asks the task to stop ("cancel:STATUS") or goes away ("detach:STATUS").
// Prints what it comes to see, each as one line of JSON that has a single member, named for what it is.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, url, verb, what, leave = ""] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport } = createRequire(`${folder}/`)("@modelcontextprotocol/client");
const { createTaskSessionFromClient, createApplicationInputHandler } = await import(
    pathToFileURL(`${folder}/@modelcontextprotocol/ext-tasks/dist/client/index.js`)
);

const VERSION = "2026-07-28";
const CLIENT_INFO = { name: "interop", version: "1" };
const CAPABILITIES = { elicitation: { form: {} }, extensions: { "io.modelcontextprotocol/tasks": {} } };

const print = (name, value) => process.stdout.write(`${JSON.stringify({ [name]: value })}\n`);

// What the package leaves to its host: one request, as the specification has it on the wire.
let requests = 0;
async function rawDispatch(request, { signal, context } = {}) {
    const { method, params } = request;
    const name = method === "tools/call" ? { "Mcp-Name": params.name } : {};
    const response = await fetch(url, {
        method: "POST",
        headers: {
            "Content-Type": "application/json",
            Accept: "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
            ...name,
            ...context?.headers,
        },
        body: JSON.stringify({ jsonrpc: "2.0", id: ++requests, method, params }),
        signal,
    });
    const text = await response.text();
    const json = response.headers.get("Content-Type")?.startsWith("text/event-stream")
        ? text.split("\n").findLast((line) => line.startsWith("data: ")).slice("data: ".length)
        : text;
    const { result, error } = JSON.parse(json);
    return error === undefined ? { kind: "result", result } : { kind: "error", error };
}

// A form is filled in by its keys: "name" with a name, anything else with yes.
const onInputRequest = createApplicationInputHandler({
    elicitation: ({ params }, { inputId, delivery }) => {
        print("asked", { inputId, delivery, message: params.message });
        const keys = Object.keys(params.requestedSchema.properties);
        return { action: "accept", content: Object.fromEntries(keys.map((key) => [key, key === "name" ? "Ada" : true])) };
    },
    sampling: () => Promise.reject(new Error("not offered")),
    roots: () => Promise.reject(new Error("not offered")),
});

const client = new Client(CLIENT_INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode: { pin: VERSION } } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const session = createTaskSessionFromClient(client, {
    endpointId: "interop",
    rawDispatch,
    v2RequestFraming: { protocolVersion: VERSION, clientInfo: CLIENT_INFO, clientCapabilities: CAPABILITIES },
    onInputRequest,
    onError: (error) => print("error", String(error)),
});

const [leaving, at] = leave.split(":");
const left = new AbortController();
const execution = await (verb === "call" ? session.callTool(what, {}) : session.resumeTask(JSON.parse(what)));
print("kind", execution.kind);
if (execution.kind === "task") print("reference", execution.serializeReference());
try {
    const { outcome } = await execution.settle({
        signal: left.signal,
        onEvent: async (event) => {
            if (event.type !== "task") return;
            print("task", event.task);
            if (event.task.status !== at) return;
            if (leaving === "cancel") await execution.cancel();
            else left.abort();
        },
    });
    const { status, result, error } = outcome;
    print("outcome", { status, result, error: error && { name: error.name, code: error.code, message: error.message } });
} catch (error) {
    print("left", { name: error.name });
}
await session.close();
await client.close();

// The TypeScript SDK's client makes a task, listens for it, and answers what it asks.
//
//     node listen.mjs FOLDER URL TOOL      FOLDER: where the packages are installed
//
// Prints what it comes to see, each as one line of JSON that has a single member, named for what it is.

import { createRequire } from "node:module";

const [folder, url, tool] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport } = createRequire(`${folder}/`)("@modelcontextprotocol/client");

const TASKS = "io.modelcontextprotocol/tasks";
const ANYTHING = { "~standard": { version: 1, vendor: "interop", validate: (value) => ({ value }) } };

const print = (what, value) => process.stdout.write(`${JSON.stringify({ [what]: value })}\n`);

const client = new Client(
    { name: "interop", version: "1" },
    {
        capabilities: { elicitation: { form: {} }, extensions: { [TASKS]: {} } },
        versionNegotiation: { mode: { pin: "2026-07-28" } },
    },
);
client.onerror = (error) => print("error", String(error));

// The client hands each message to whoever held this before it.
let handle;
const transport = new StreamableHTTPClientTransport(new URL(url));
transport.onmessage = (message) => {
    if (message.result?.resultType === "task") handle = message.result;
    if (message.method === "notifications/subscriptions/acknowledged") print("acknowledged", message.params);
};

client.setNotificationHandler("notifications/tasks", { params: ANYTHING }, async (snapshot) => {
    print("snapshot", snapshot);
    if (snapshot.status !== "input_required") return;
    const inputResponses = {};
    for (const key of Object.keys(snapshot.inputRequests)) {
        inputResponses[key] = { action: "accept", content: { approved: true } };
    }
    const params = { taskId: snapshot.taskId, inputResponses };
    print("answered", await client.request({ method: "tasks/update", params }, ANYTHING));
});

await client.connect(transport);
print("server", client.getServerVersion());

try {
    print("called", await client.callTool({ name: tool, arguments: {} }));
} catch (error) {
    print("refused", { code: error.code, data: error.data });
}
print("handle", handle);

const subscription = await client.listen({ taskIds: [handle.taskId, "tsk_nobodys"] });
print("honored", subscription.honoredFilter);
print("closed", await subscription.closed);
print("task", await client.request({ method: "tasks/get", params: { taskId: handle.taskId } }, ANYTHING));
await client.close();

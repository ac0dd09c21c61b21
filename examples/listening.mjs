// The client of the TypeScript SDK listens to a task of examples/report_server.py, whatever becomes of its connection.
//
//     npm install @modelcontextprotocol/client@2.4.0
//     node listening.mjs http://127.0.0.1:8000/mcp

import { setTimeout as sleep } from "node:timers/promises";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const FINAL = ["completed", "failed", "cancelled"];
// What the SDK does not know comes with a schema: any Standard Schema, and this one takes everything.
const ANYTHING = { "~standard": { version: 1, vendor: "example", validate: (value) => ({ value }) } };

const client = new Client(
    { name: "listening", version: "1.0" },
    {
        capabilities: { elicitation: { form: {} }, extensions: { "io.modelcontextprotocol/tasks": {} } },
        // Or it speaks 2025-11-25, which has no extensions.
        versionNegotiation: { mode: "auto" },
    },
);

// `callTool` throws a handle away. Whoever held `onmessage` before the client is handed each message too.
let taskId;
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]));
transport.onmessage = (message) => {
    if (message.result?.resultType === "task") taskId = message.result.taskId;
};

client.setNotificationHandler("notifications/tasks", { params: ANYTHING }, async (task) => {
    console.log(task.status, task.statusMessage ?? "");
    if (task.status !== "input_required") return;
    const inputResponses = {};
    for (const key of Object.keys(task.inputRequests)) {
        inputResponses[key] = { action: "accept", content: { approved: true } };
    }
    await client.request({ method: "tasks/update", params: { taskId, inputResponses } }, ANYTHING);
});

await client.connect(transport);
try {
    await client.callTool({ name: "generate_report", arguments: { size: "large" } });
} catch (error) {
    if (error.code !== "UNSUPPORTED_RESULT_TYPE") throw error;
}

// How a stream was closed does not say whether the task is over, and the filter that it honored leaves `taskIds` out:
// `tasks/get` tells, and knows of an id that nobody has.
let task;
for (;;) {
    try {
        const subscription = await client.listen({ taskIds: [taskId] });
        console.log("the end of the stream:", await subscription.closed);
        task = await client.request({ method: "tasks/get", params: { taskId } }, ANYTHING);
    } catch (error) {
        // Numbers are what a server answers. -32000: it can't just now.
        if (typeof error.code === "number" && error.code !== -32000) throw error;
        console.log(error.message);
    }
    if (FINAL.includes(task?.status)) break;
    await sleep(2000);
}
console.log(task.result?.content ?? task.error ?? task.status);
await client.close();

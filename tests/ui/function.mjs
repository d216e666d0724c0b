// A function without Requeue, for the tests of the screen "Live": it writes the log of each message
// in JSON. A message whose body is "bad" stays in the queue.

const api = `http://${process.env.AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime`;
for (;;) {
  const next = await fetch(`${api}/invocation/next`);
  const { Records } = await next.json();
  const bad = Records.filter(({ body }) => body === "bad");
  for (const { messageId } of bad) {
    console.log(JSON.stringify({ messageId, disposition: "release", class: "temporary", reason: "<b>not</b> today", delaySeconds: 1, elapsedMs: 3 }));
  }
  console.log("a line of text");
  const id = next.headers.get("lambda-runtime-aws-request-id");
  await fetch(`${api}/invocation/${id}/response`, { method: "POST", body: JSON.stringify({ batchItemFailures: bad.map(({ messageId }) => ({ itemIdentifier: messageId })) }) });
}

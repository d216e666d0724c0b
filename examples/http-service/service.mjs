// An HTTP service behind Requeue: node examples/http-service/service.mjs
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';

const secret = process.env.SIGNING_SECRET; // whsec_…; without it no signature is checked
const charged = new Set(); // in production: a table with the key as its primary key

function respond(headers, body) {
  if (secret && !isSigned(headers, body)) return [401];
  const key = headers['idempotency-key'];
  if (charged.has(key)) return [200];

  let order;
  try {
    order = JSON.parse(body);
  } catch {
    return [400];
  }
  const wait = Math.ceil(order.notBefore - Date.now() / 1000);
  if (wait > 0) return [429, { 'Retry-After': wait, 'Requeue-Scope': 'message' }];
  if (order.card === 'declined') return [422];
  const retries = Number(headers['x-requeue-retry-count']);
  if (order.card === 'busy' && retries < 1) return [429, { 'Retry-After': 2 }];
  charged.add(key);
  return [200];
}

// Standard Webhooks: the signed text is `webhook-id.webhook-timestamp.body`.
function isSigned(headers, body) {
  const { 'webhook-id': id, 'webhook-timestamp': sent, 'webhook-signature': signatures } = headers;
  if (!signatures || Math.abs(Date.now() / 1000 - sent) > 300) return false;
  const secretBytes = Buffer.from(secret.slice('whsec_'.length), 'base64');
  const expected = createHmac('sha256', secretBytes).update(`${id}.${sent}.`).update(body).digest();
  return signatures.split(' ').some((signature) => {
    const bytes = Buffer.from(signature.slice('v1,'.length), 'base64');
    return bytes.length === expected.length && timingSafeEqual(bytes, expected);
  });
}

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const [status, headers] = respond(request.headers, body);
  console.log(`${status}  retry ${request.headers['x-requeue-retry-count']}  ${body}`);
  response.writeHead(status, headers).end();
});

const port = process.env.PORT ?? 3000;
server.listen(port, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${port}/orders`));

// Responds after the argument's milliseconds, to a body "fail" with 503. A GET returns the number of other POSTs.
import { createServer } from 'node:http';

let done = 0;
const server = createServer((request, response) => {
  if (request.method === 'GET') {
    response.end(String(done));
    return;
  }
  let body = '';
  request.on('data', (part) => { body += part; });
  request.on('end', () => setTimeout(() => {
    const fails = body.includes('fail');
    if (!fails) done += 1;
    response.statusCode = fails ? 503 : 200;
    response.end();
  }, Number(process.argv[2])));
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => console.log(server.address().port));

// Forwards each request to the port of the argument after 5 ms, as a queue in the region would take. A GET
// returns the number of other requests.
import { Agent, createServer, request as forward } from 'node:http';

const agent = new Agent({ keepAlive: true });
let requests = 0;
const server = createServer((request, response) => {
  if (request.method === 'GET') {
    response.end(String(requests));
    return;
  }
  requests += 1;
  const { method, url: path, headers } = request;
  setTimeout(() => {
    const options = { port: process.argv[2], method, path, headers, agent };
    request.pipe(forward(options, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    }));
  }, 5);
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => console.log(server.address().port));

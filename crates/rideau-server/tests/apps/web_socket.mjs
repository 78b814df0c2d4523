// A client of WebSockets over HTTP/2, with what Node speaks. It opens some on one connection,
// has what it says sent back, and closes them when a line comes.

import assert from 'node:assert';
import http2 from 'node:http2';
import readline from 'node:readline';
import { once } from 'node:events';
import { randomBytes } from 'node:crypto';

const TEXT = 1;
const BINARY = 2;
const CLOSE = 8;
const PING = 9;
const PONG = 10;

function frame(kind, payload) {
  const mask = randomBytes(4);
  const masked = payload.map((byte, at) => byte ^ mask[at % 4]);
  let head;
  if (payload.length < 126) {
    head = Buffer.from([0x80 | kind, 0x80 | payload.length]);
  } else if (payload.length < 65536) {
    head = Buffer.from([0x80 | kind, 0x80 | 126, 0, 0]);
    head.writeUInt16BE(payload.length, 2);
  } else {
    head = Buffer.from([0x80 | kind, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 0]);
    head.writeBigUInt64BE(BigInt(payload.length), 2);
  }
  return Buffer.concat([head, mask, masked]);
}

class WebSocket {
  constructor(session, path) {
    this.stream = session.request({
      ':method': 'CONNECT',
      ':protocol': 'websocket',
      ':path': path,
      ':scheme': 'http',
      ':authority': 'shop.example',
      'sec-websocket-version': '13',
      'sec-websocket-protocol': 'echo',
      origin: 'http://shop.example',
    });
    this.held = Buffer.alloc(0);
    this.parts = this.stream[Symbol.asyncIterator]();
  }

  async opened() {
    const [fields] = await once(this.stream, 'response');
    return fields;
  }

  async bytes(length) {
    while (this.held.length < length) {
      const { value, done } = await this.parts.next();
      if (done) return null;
      this.held = Buffer.concat([this.held, value]);
    }
    const bytes = this.held.subarray(0, length);
    this.held = this.held.subarray(length);
    return bytes;
  }

  // A whole message; none at the end.
  async message() {
    const payloads = [];
    let kind = 0;
    for (;;) {
      const head = await this.bytes(2);
      if (head === null) return null;
      kind = head[0] & 15 || kind;
      let length = head[1] & 127;
      if (length === 126) length = (await this.bytes(2)).readUInt16BE();
      if (length === 127) length = Number((await this.bytes(8)).readBigUInt64BE());
      payloads.push(await this.bytes(length));
      if (head[0] & 0x80) return [kind, Buffer.concat(payloads)];
    }
  }

  say(kind, payload) {
    this.stream.write(frame(kind, Buffer.from(payload)));
  }
}

async function talk(socket, number) {
  const fields = await socket.opened();
  assert.equal(fields[':status'], 200);
  assert.equal(fields['sec-websocket-protocol'], 'echo');
  assert.equal(fields['sec-websocket-accept'], undefined);
  for (let at = 0; at < 50; at++) {
    socket.say(TEXT, `${number} says ${at}`);
    const [kind, said] = await socket.message();
    assert.equal(kind, TEXT);
    assert.equal(said.toString(), `${number} says ${at}`);
  }
  const long = randomBytes(300_000);
  socket.say(BINARY, long);
  assert.deepEqual(await socket.message(), [BINARY, long]);
  socket.say(PING, 'there?');
  assert.deepEqual(await socket.message(), [PONG, Buffer.from('there?')]);
}

async function close(socket) {
  socket.say(CLOSE, [0x03, 0xe8]);
  const [kind] = await socket.message();
  assert.equal(kind, CLOSE);
  socket.stream.end();
  assert.equal(await socket.message(), null, 'it ends after the last word');
}

const session = http2.connect(process.argv[2]);
const [settings] = await once(session, 'remoteSettings');
assert.equal(settings.enableConnectProtocol, true);

const refused = new WebSocket(session, '/no');
assert.equal((await refused.opened())[':status'], 403);

const sockets = Array.from({ length: 5 }, () => new WebSocket(session, '/echo'));
await Promise.all(sockets.map(talk));
const request = session.request({ ':path': '/', ':authority': 'shop.example' });
assert.equal((await once(request, 'response'))[0][':status'], 200, 'requests go on beside them');
request.resume();
console.log('open');
await once(readline.createInterface({ input: process.stdin }), 'line');
// One leaves without a word.
sockets.pop().stream.close(http2.constants.NGHTTP2_CANCEL);
await Promise.all(sockets.map(close));
session.close();
console.log('closed');
process.exit(0);

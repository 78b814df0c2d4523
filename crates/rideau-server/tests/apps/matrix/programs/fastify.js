HEAD
const { Readable } = require("node:stream");
const fastify = require("fastify");

const [VERSION, MODE] = ["@VERSION", "@MODE"];
const PIECE = Buffer.alloc(65536, "x");
const app = fastify({ bodyLimit: 1 << 30 });

app.addContentTypeParser("*", (request, payload, done) => {
  let total = 0;
  payload.on("data", (piece) => (total += piece.length));
  payload.on("end", () => done(null, total));
});

app.get("/", async () => {
  if (MODE === "fails" || (MODE === "half" && Math.random() < 0.5)) {
    throw new Error("broken on purpose");
  }
  return VERSION;
});

app.get("/work", async () => {
  await new Promise((resolve) => setTimeout(resolve, MODE === "slow" ? 600 : 100));
  return VERSION;
});

app.post("/up", async (request) => String(request.body));

app.get("/down/:mebibytes", async (request, reply) => {
  function* pieces() {
    for (let n = 0; n < request.params.mebibytes * 16; n++) {
      yield PIECE;
    }
  }
  return reply.send(Readable.from(pieces()));
});

app.get("/events", (request, reply) => {
  reply.hijack();
  reply.raw.setHeader("Content-Type", "text/event-stream");
  const timer = setInterval(() => reply.raw.write(`data: ${VERSION}\n\n`), 100);
  reply.raw.on("close", () => clearInterval(timer));
});

app.listen({ port: Number(process.env.PORT), host: "127.0.0.1" });

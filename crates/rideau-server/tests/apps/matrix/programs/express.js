HEAD
const express = require("express");

const [VERSION, MODE] = ["@VERSION", "@MODE"];
const PIECE = Buffer.alloc(65536, "x");
const app = express();

app.get("/", (request, response) => {
  if (MODE === "fails" || (MODE === "half" && Math.random() < 0.5)) {
    throw new Error("broken on purpose");
  }
  response.send(VERSION);
});

app.get("/work", (request, response) => {
  setTimeout(() => response.send(VERSION), MODE === "slow" ? 600 : 100);
});

app.post("/up", (request, response) => {
  let total = 0;
  request.on("data", (piece) => (total += piece.length));
  request.on("end", () => response.send(String(total)));
});

app.get("/down/:mebibytes", async (request, response) => {
  for (let n = 0; n < request.params.mebibytes * 16; n++) {
    if (!response.write(PIECE)) {
      await new Promise((resolve) => response.once("drain", resolve));
    }
  }
  response.end();
});

app.get("/events", (request, response) => {
  response.type("text/event-stream");
  const timer = setInterval(() => response.write(`data: ${VERSION}\n\n`), 100);
  response.on("close", () => clearInterval(timer));
});

app.listen(process.env.PORT, "127.0.0.1");

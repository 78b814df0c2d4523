import asyncio
import random

HEAD

from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

VERSION, MODE = "@VERSION", "@MODE"
PIECE = b"x" * 65536
app = FastAPI()


@app.get("/")
async def page():
    if MODE == "fails" or (MODE == "half" and random.random() < 0.5):
        raise RuntimeError("broken on purpose")
    return Response(VERSION)


@app.get("/work")
async def work():
    await asyncio.sleep(0.6 if MODE == "slow" else 0.1)
    return Response(VERSION)


@app.post("/up")
async def up(request: Request):
    total = 0
    async for piece in request.stream():
        total += len(piece)
    return Response(str(total))


@app.get("/down/{mebibytes}")
async def down(mebibytes: int):
    async def pieces():
        for _ in range(mebibytes * 16):
            yield PIECE

    return StreamingResponse(pieces())


@app.get("/events")
async def events():
    async def endless():
        while True:
            yield f"data: {VERSION}\n\n"
            await asyncio.sleep(0.1)

    return StreamingResponse(endless(), media_type="text/event-stream")


@app.websocket("/talk")
async def talk(socket: WebSocket):
    await socket.accept()
    try:
        while True:
            said = await socket.receive_text()
            await socket.send_text(f"{VERSION} {said}")
    except WebSocketDisconnect:
        pass

import random
import time

HEAD

from flask import Flask, Response, request

VERSION, MODE = "@VERSION", "@MODE"
PIECE = b"x" * 65536
app = Flask(__name__)


@app.get("/")
def page():
    if MODE == "fails" or (MODE == "half" and random.random() < 0.5):
        return "no", 500
    return VERSION


@app.get("/work")
def work():
    time.sleep(0.6 if MODE == "slow" else 0.1)
    return VERSION


@app.post("/up")
def up():
    total = 0
    while piece := request.stream.read(65536):
        total += len(piece)
    return str(total)


@app.get("/down/<int:mebibytes>")
def down(mebibytes):
    return Response((PIECE for _ in range(mebibytes * 16)), mimetype="application/octet-stream")


@app.get("/events")
def events():
    def endless():
        while True:
            yield f"data: {VERSION}\n\n"
            time.sleep(0.1)

    return Response(endless(), mimetype="text/event-stream")

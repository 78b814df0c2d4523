import random
import time

HEAD

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path

VERSION, MODE = "@VERSION", "@MODE"
PIECE = b"x" * 65536
settings.configure(
    SECRET_KEY="of a test",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
)


def page(request):
    if MODE == "fails" or (MODE == "half" and random.random() < 0.5):
        raise RuntimeError("broken on purpose")
    return HttpResponse(VERSION)


def work(request):
    time.sleep(0.6 if MODE == "slow" else 0.1)
    return HttpResponse(VERSION)


def up(request):
    total = 0
    while piece := request.read(65536):
        total += len(piece)
    return HttpResponse(str(total))


def down(request, mebibytes):
    return StreamingHttpResponse(PIECE for _ in range(mebibytes * 16))


def events(request):
    def endless():
        while True:
            yield f"data: {VERSION}\n\n"
            time.sleep(0.1)

    return StreamingHttpResponse(endless(), content_type="text/event-stream")


urlpatterns = [
    path("", page),
    path("work", work),
    path("up", up),
    path("down/<int:mebibytes>", down),
    path("events", events),
]
app = get_wsgi_application()

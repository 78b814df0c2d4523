package main

HEAD

import (
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const version, mode = "@VERSION", "@MODE"

func page(out http.ResponseWriter, request *http.Request) {
	if mode == "fails" || (mode == "half" && rand.Intn(2) == 0) {
		http.Error(out, "no", 500)
		return
	}
	fmt.Fprint(out, version)
}

func work(out http.ResponseWriter, request *http.Request) {
	if mode == "slow" {
		time.Sleep(500 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	fmt.Fprint(out, version)
}

func up(out http.ResponseWriter, request *http.Request) {
	total, _ := io.Copy(io.Discard, request.Body)
	fmt.Fprint(out, total)
}

func down(out http.ResponseWriter, request *http.Request) {
	mebibytes, _ := strconv.Atoi(strings.TrimPrefix(request.URL.Path, "/down/"))
	piece := []byte(strings.Repeat("x", 65536))
	for n := 0; n < mebibytes*16; n++ {
		if _, err := out.Write(piece); err != nil {
			return
		}
	}
}

func events(out http.ResponseWriter, request *http.Request) {
	out.Header().Set("Content-Type", "text/event-stream")
	for {
		if _, err := fmt.Fprintf(out, "data: %s\n\n", version); err != nil {
			return
		}
		out.(http.Flusher).Flush()
		select {
		case <-request.Context().Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func main() {
	if "@MODE" == "raises" {
		panic("broken on purpose")
	}
	http.HandleFunc("/", page)
	http.HandleFunc("/work", work)
	http.HandleFunc("/up", up)
	http.HandleFunc("/down/", down)
	http.HandleFunc("/events", events)
	panic(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}

package rideau

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A ServerError is an error of the server that is no refusal: a mistake, or a missing right.
type ServerError string

func (e ServerError) Error() string { return string(e) }

func (e ServerError) has(text string) bool { return strings.Contains(string(e), text) }

type conn struct {
	net.Conn
	from *bufio.Reader
}

// dial connects to redis://, rediss:// or unix:///path, and logs in.
func dial(address string, config *tls.Config) (*conn, error) {
	to, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	var stream net.Conn
	dialer := &net.Dialer{Timeout: timeout}
	switch to.Scheme {
	case "unix":
		stream, err = dialer.Dial("unix", to.Path)
	case "rediss":
		stream, err = tls.DialWithDialer(dialer, "tcp", to.Host, config)
	default:
		stream, err = dialer.Dial("tcp", to.Host)
	}
	if err != nil {
		return nil, err
	}
	c, login := &conn{stream, bufio.NewReader(stream)}, []any{"HELLO", 2}
	if password, ok := to.User.Password(); ok {
		user := to.User.Username()
		if user == "" {
			user = "default"
		}
		login = append(login, "AUTH", user, password)
	}
	if _, err = c.do(timeout, login...); err != nil {
		c.Close()
	}
	return c, err
}

// do sends a command and returns its answer.
func (c *conn) do(within time.Duration, words ...any) (any, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "*%d\r\n", len(words))
	for _, word := range words {
		if bytes, ok := word.([]byte); ok {
			word = string(bytes)
		}
		text := fmt.Sprint(word)
		fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(text), text)
	}
	c.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(c, out.String()); err != nil {
		return nil, err
	}
	return c.read()
}

func (c *conn) read() (any, error) {
	line, err := c.from.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	if kind == '+' {
		return rest, nil
	} else if kind == '-' {
		return nil, ServerError(rest)
	}
	number, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || kind == ':' {
		return number, err
	} else if number < 0 {
		return nil, nil
	} else if kind == '$' {
		text := make([]byte, number+2)
		_, err = io.ReadFull(c.from, text)
		return string(text[:number]), err
	} else if kind != '*' {
		return nil, fmt.Errorf("%q is no answer", line)
	}
	list := make([]any, number)
	for at := range list {
		if list[at], err = c.read(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// A reply is a list; what is missing in it is empty.
type reply []any

func (r reply) text(at int) string {
	if at < len(r) && r[at] != nil {
		return fmt.Sprint(r[at])
	}
	return ""
}

func (r reply) number(at int) int64 {
	number, _ := strconv.ParseInt(r.text(at), 10, 64)
	return number
}

func (r reply) micros(at int) time.Duration { return time.Duration(r.number(at)) * time.Microsecond }

// isPending says that the wait of an AWAIT is over, and the ask goes on.
func (r reply) isPending() bool { return r.text(0) == "timeout" && r.text(3) == "waits" }

var began = time.Now()

// now is the time since the start, of a clock that goes on while the machine sleeps.
func now() time.Duration {
	steady, wall := time.Since(began), time.Now().Round(0).Sub(began.Round(0))
	if wall > steady {
		return wall
	}
	return steady
}

// millis rounds up; what is below zero is none.
func millis(span time.Duration) int64 {
	if span <= 0 {
		return 0
	}
	return int64((span + time.Millisecond - 1) / time.Millisecond)
}

// Package resp speaks the Redis protocol, as a client for Redis would: a connection, its login, and
// commands with their answers.
package resp

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

// An Error is what a server answers with an error.
type Error string

func (e Error) Error() string { return string(e) }

// Has says whether it contains this.
func (e Error) Has(text string) bool { return strings.Contains(string(e), text) }

// A Conn is a connection for one command at a time.
type Conn struct {
	net.Conn
	from *bufio.Reader
}

// Dial connects to redis://, rediss:// or unix:///path, and logs in.
func Dial(address string, config *tls.Config, timeout time.Duration) (*Conn, error) {
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
	c, login := &Conn{stream, bufio.NewReader(stream)}, []any{"HELLO", 2}
	if password, ok := to.User.Password(); ok {
		user := to.User.Username()
		if user == "" {
			user = "default"
		}
		login = append(login, "AUTH", user, password)
	}
	if _, err = c.Do(timeout, login...); err != nil {
		c.Close()
	}
	return c, err
}

// Do sends a command and returns its answer.
func (c *Conn) Do(within time.Duration, words ...any) (any, error) {
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

func (c *Conn) read() (any, error) {
	line, err := c.from.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	if kind == '+' {
		return rest, nil
	} else if kind == '-' {
		return nil, Error(rest)
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

// A Reply is a list; what is missing in it is empty.
type Reply []any

// Text of an element.
func (r Reply) Text(at int) string {
	if at < len(r) && r[at] != nil {
		return fmt.Sprint(r[at])
	}
	return ""
}

// Number of an element.
func (r Reply) Number(at int) int64 {
	number, _ := strconv.ParseInt(r.Text(at), 10, 64)
	return number
}

// Micros are an element in microseconds.
func (r Reply) Micros(at int) time.Duration { return time.Duration(r.Number(at)) * time.Microsecond }

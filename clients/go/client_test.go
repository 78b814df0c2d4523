package rideau

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const config = `
[server]
listen = ["127.0.0.1:%d"]
admin = "none"
[store]
kind = "memory"
[pool.one]
member = { list = ["m1"] }
[pool.two]
member = { list = ["m1", "m2"] }
[broker.desk]
[regulator.few]
valve = { kind = "open", max = 1 }
[range.office]
values = ["100-103"]
start = "free"
[lock."*"]
[limits]
keys_max = 3
`

type server struct {
	testing.TB
	port    int
	command *exec.Cmd
}

// start starts a server of the test's own, which ends with it.
func start(t testing.TB, port int) *server {
	if port == 0 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		port = listener.Addr().(*net.TCPAddr).Port
		listener.Close()
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "rideau.toml")
	must(t, os.WriteFile(file, []byte(fmt.Sprintf(config, port)), 0o600))
	s := &server{t, port, exec.Command(os.Getenv("RIDEAU_PROGRAM"), "serve", "-c", file)}
	s.command.Env = append(os.Environ(), "XDG_STATE_HOME="+folder)
	must(t, s.command.Start())
	t.Cleanup(s.kill)
	until(t, "the server answers", func() bool {
		to, err := net.Dial("tcp", s.address())
		if err == nil {
			to.Close()
		}
		return err == nil
	})
	return s
}

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *server) kill() {
	s.command.Process.Kill()
	s.command.Wait()
}

func (s *server) cli(words ...string) {
	words = append([]string{"--server", s.address()}, words...)
	out, err := exec.Command(os.Getenv("RIDEAU_PROGRAM"), words...).CombinedOutput()
	if err != nil {
		s.Fatal(string(out))
	}
}

func (s *server) client(options Options) *Client {
	if options.Addresses == nil {
		options.Addresses = []string{"redis://" + s.address()}
	}
	c := New(options)
	s.Cleanup(c.Close)
	return c
}

func (s *server) isFree() bool {
	c := New(Options{Addresses: []string{"redis://" + s.address()}})
	defer c.Close()
	_, err := c.Acquire(context.Background(), Locks, "job", Ask{})
	var no *Refused
	if err != nil && !errors.As(err, &no) {
		s.Fatal(err)
	}
	return err == nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal(what)
		}
	}
}

func isLost(err error) bool {
	var lost *LeaseLost
	return errors.As(err, &lost)
}

var background = context.Background()

func TestALockIsHeldInItsFunctionAndARefusalSaysWhy(t *testing.T) {
	t.Parallel()
	s := start(t, 0)
	c := s.client(Options{})
	var fence int64
	must(t, c.Lock(background, "job", Wait(10*time.Second), func(ctx context.Context, it *Lease) error {
		if it.Unit != 1 || it.Units != 1 || !it.SureUntil().IsZero() || ctx.Err() != nil {
			t.Error(it)
		}
		var no *Refused
		_, err := c.Acquire(ctx, Locks, "job", Ask{})
		if !errors.As(err, &no) || no.Reason != "busy" || no.RetryAfter >= 0 {
			t.Error(err)
		}
		_, err = c.Acquire(ctx, Locks, "job", Wait(20*time.Millisecond))
		if !errors.As(err, &no) || no.Reason != "deadline" || no.RetryAfter < 0 || no.ID[:2] != "d-" {
			t.Error(err)
		}
		fence = it.Fence
		return nil
	}))
	mine := errors.New("mine")
	err := c.Lock(background, "job", Ask{}, func(_ context.Context, it *Lease) error {
		if it.Fence <= fence {
			t.Error("the fence does not grow")
		}
		return mine
	})
	if err != mine || !s.isFree() {
		t.Error(err)
	}
	for _, key := range []string{"job", "key-1", "key-2"} {
		_, err := c.Acquire(background, Locks, key, Ask{})
		must(t, err)
	}
	var no *Refused
	_, err = c.Acquire(background, Locks, "one more", Ask{})
	if !errors.As(err, &no) || no.Reason != "busy" || !strings.Contains(no.Why, "keys_max") {
		t.Error(err)
	}
}

func TestMembersPartiesAndRegulators(t *testing.T) {
	t.Parallel()
	s := start(t, 0)
	c := s.client(Options{Retries: 100})
	must(t, c.Take(background, "two", Wait(time.Second), func(_ context.Context, it *Lease) error {
		if it.Value != "m1" {
			t.Error(it.Value)
		}
		return nil
	}))
	var said ServerError
	if _, err := c.Acquire(background, Pools, "none", Ask{}); !errors.As(err, &said) {
		t.Error(err)
	}
	go c.Offer(background, "desk", Ask{Value: "worker", Wait: 20 * time.Second}, func(_ context.Context, it *Lease) error {
		return it.Done([]byte(it.Value + " is done"))
	})
	must(t, c.Ask(background, "desk", Ask{Value: "order", Wait: 20 * time.Second}, func(ctx context.Context, it *Lease) error {
		answer, err := it.Ended(ctx)
		if answer != "order is done" || it.Value != "worker" {
			t.Error(answer, err)
		}
		return err
	}))
	go c.Offer(background, "desk", Wait(20*time.Second), func(context.Context, *Lease) error { return errors.New("gone") })
	err := c.Ask(background, "desk", Wait(20*time.Second), func(ctx context.Context, it *Lease) error {
		_, err := it.Ended(ctx)
		return err
	})
	if !isLost(err) {
		t.Error(err)
	}
	must(t, c.Regulate(background, "few", Ask{}, func(_ context.Context, it *Lease) error {
		goes, err := it.Renew()
		if !goes {
			t.Error("it does not go on")
		}
		return err
	}))
}

func TestValuesAreRenewedInTheBackground(t *testing.T) {
	t.Parallel()
	c := start(t, 0).client(Options{})
	for _, wait := range []time.Duration{0, time.Second} {
		ask := Ask{Wait: wait, TTL: 6 * time.Second, Key: []string{"mac:1"}, Data: "laptop"}
		must(t, c.Reserve(background, "office", ask, func(_ context.Context, it *Lease) error {
			first := it.sureUntil()
			until(t, "it is renewed", func() bool { return it.sureUntil() > first })
			if it.Value != "100" || it.Fence == 0 {
				t.Error(it)
			}
			return it.Err()
		}))
	}
}

func TestARevokedLeaseIsLost(t *testing.T) {
	t.Parallel()
	s := start(t, 0)
	c := s.client(Options{})
	told := 0
	err := c.Lock(background, "job", Ask{}, func(ctx context.Context, it *Lease) error {
		it.OnChange(func(*Lease) { told++ })
		s.cli("revoke", it.Ticket)
		<-ctx.Done()
		if !isLost(it.Err()) {
			t.Error(it.Err())
		}
		return ctx.Err()
	})
	if !isLost(err) || told != 1 {
		t.Error(err, told)
	}
	must(t, c.Lock(background, "job", Ask{}, func(context.Context, *Lease) error { return nil }))
}

func TestAllIsLostWithTheServerAndTheNextOneServes(t *testing.T) {
	t.Parallel()
	s := start(t, 0)
	c := s.client(Options{})
	it, err := c.Acquire(background, Locks, "job", Ask{})
	must(t, err)
	s.kill()
	<-it.Context().Done()
	if !isLost(it.Release()) {
		t.Error("it was released")
	}
	if _, err := c.Acquire(background, Locks, "job", Ask{}); err == nil {
		t.Error("there is no server")
	}
	start(t, s.port)
	must(t, c.Lock(background, "job", Ask{}, func(context.Context, *Lease) error { return nil }))
}

// between stands between a client and a server, until it is cut or silent.
func between(t *testing.T, s *server) (address string, cut, silence func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var mu sync.Mutex
	var ends []net.Conn
	isSilent := false
	cut = func() {
		listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, end := range ends {
			end.Close()
		}
	}
	silence = func() {
		mu.Lock()
		defer mu.Unlock()
		isSilent = true
	}
	t.Cleanup(cut)
	pass := func(from, into net.Conn) {
		data := make([]byte, 65536)
		for {
			size, err := from.Read(data)
			if err != nil {
				into.Close()
				return
			}
			mu.Lock()
			if !isSilent {
				into.Write(data[:size])
			}
			mu.Unlock()
		}
	}
	go func() {
		for {
			one, err := listener.Accept()
			if err != nil {
				return
			}
			other, err := net.Dial("tcp", s.address())
			if err != nil {
				one.Close()
				continue
			}
			mu.Lock()
			ends = append(ends, one, other)
			mu.Unlock()
			go pass(one, other)
			go pass(other, one)
		}
	}()
	return "redis://" + listener.Addr().String(), cut, silence
}

func TestAllIsLostWithTheConnection(t *testing.T) {
	t.Parallel()
	for _, isCut := range []bool{true, false} {
		address, cut, silence := between(t, start(t, 0))
		c := New(Options{Addresses: []string{address}})
		it, err := c.Acquire(background, Locks, "job", Ask{})
		must(t, err)
		since := time.Now()
		if isCut {
			cut()
		} else {
			silence()
		}
		<-it.Context().Done()
		t.Log("told after", time.Since(since))
		if !isLost(it.Err()) {
			t.Error(it.Err())
		}
	}
}

func TestACancelledWaitLeavesNothing(t *testing.T) {
	t.Parallel()
	s := start(t, 0)
	c := s.client(Options{})
	first, err := c.Acquire(background, Locks, "job", Ask{})
	must(t, err)
	for _, pause := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 200 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(background, pause)
		_, err := c.Acquire(ctx, Locks, "job", Wait(25*time.Second))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	must(t, first.Release())
	if !s.isFree() || len(c.pending) != 0 {
		t.Error("something is held")
	}
}

func TestManyWaitAndEachGetsIt(t *testing.T) {
	t.Parallel()
	c := start(t, 0).client(Options{})
	var all sync.WaitGroup
	inside, served := 0, 0
	for number := 0; number < 30; number++ {
		all.Add(1)
		go func() {
			defer all.Done()
			err := c.Lock(background, "job", Wait(25*time.Second), func(context.Context, *Lease) error {
				inside++
				served++
				if inside != 1 {
					t.Error("two are inside")
				}
				inside--
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	if served != 30 {
		t.Error(served)
	}
}

func TestAPanicGivesBack(t *testing.T) {
	t.Parallel()
	s := start(t, 0)
	c := s.client(Options{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		c.Lock(background, "job", Ask{}, func(context.Context, *Lease) error { panic("mine") })
	}()
	if !s.isFree() {
		t.Error("it is held")
	}
}

// Run by the next test as a process of its own.
func TestHolder(t *testing.T) {
	address := os.Getenv("RIDEAU_HOLD")
	if address == "" {
		return
	}
	c := New(Options{Addresses: []string{address}, TTL: time.Second})
	lock, err := c.Acquire(background, Locks, "job", Ask{})
	must(t, err)
	value, err := c.Acquire(background, Ranges, "office", Ask{TTL: time.Second})
	must(t, err)
	fmt.Println("held")
	io.ReadFull(os.Stdin, make([]byte, 1))
	fmt.Println(isLost(lock.Err()), isLost(value.Err()))
	os.Exit(0)
}

func TestAProcessThatWasSuspendedKnows(t *testing.T) {
	t.Parallel()
	s := start(t, 0)
	child := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	child.Env = append(os.Environ(), "RIDEAU_HOLD=redis://"+s.address())
	stdin, _ := child.StdinPipe()
	stdout, _ := child.StdoutPipe()
	must(t, child.Start())
	t.Cleanup(func() { child.Process.Kill() })
	line := make([]byte, 5)
	io.ReadFull(stdout, line)
	signal(child, "STOP")
	c := s.client(Options{})
	must(t, c.Lock(background, "job", Wait(25*time.Second), func(context.Context, *Lease) error {
		until(t, "the value is free", func() bool {
			value, err := c.Acquire(background, Ranges, "office", Ask{})
			return err == nil && value.Value == "100"
		})
		io.WriteString(stdin, "\n")
		signal(child, "CONT")
		rest, _ := io.ReadAll(stdout)
		if string(rest) != "true true\n" {
			t.Error(string(rest))
		}
		return nil
	}))
}

func signal(child *exec.Cmd, name string) {
	exec.Command("kill", "-"+name, fmt.Sprint(child.Process.Pid)).Run()
}

// Package rideau is a client of Rideau: locks, pools, ranges, brokers and regulators.
package rideau

import (
	"context"
	crypto "crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	timeout  = 1500 * time.Millisecond // for one answer
	patience = 3500 * time.Millisecond // without an answer: what a session held is lost then
	slice    = 2000                    // milliseconds that one AWAIT waits
	idleMax  = 16                      // connections that are kept for the next command
)

// A Kind is what can be asked for; it is the command.
type Kind string

// What can be asked for.
const (
	Locks      Kind = "LOCK"
	Pools      Kind = "TAKE"
	Ranges     Kind = "RESERVE"
	Regulators Kind = "REG.ASK"
	Asks       Kind = "ASK"
	Offers     Kind = "OFFER"
)

// AtOnce is a wait that does not wait.
const AtOnce = -time.Nanosecond

// An Ask says how to ask. Its zero value asks for a lock or a value once, and for everything
// else with the server's own wait.
type Ask struct {
	Wait                time.Duration
	Note, Flow          string
	Per, Buckets, Units int           // of locks
	Value               string        // of asks and offers
	TTL                 time.Duration // of ranges: a minute by default
	Prefer, Key         []string      // of ranges
	Unique, Data, Hint  string        // of ranges
}

// Wait asks with this wait.
func Wait(wait time.Duration) Ask { return Ask{Wait: wait} }

// Options of a client; all may be left out.
type Options struct {
	Addresses []string      // redis://127.0.0.1:7433; several are tried in turn
	TLS       *tls.Config   // for rediss://
	Name      string        // how the server lists the session
	Grace     time.Duration // the session ends so long after its last connection
	TTL       time.Duration // it also ends when this process was stopped for so long
	Retries   int           // how often to ask again, after the pause that the server named
	RetryMax  time.Duration // the longest such pause: 5 s by default
}

// A Client of a server. What it holds belongs to a session, to which its connections are attached.
type Client struct {
	Options
	wake        chan struct{}
	opening, mu sync.Mutex
	session     *session
	leases      map[string]*Lease
	pending     map[string]bool
	sure        time.Duration
	beats       int
	closed      bool
}

// A session of the server, and its connections that are not used now.
type session struct {
	mu               sync.Mutex
	address, id, why string
	idle             []*conn
	heard            time.Duration
	isSick           bool
}

// New makes a client. It connects when it is used.
func New(options Options) *Client {
	if options.Addresses == nil {
		options.Addresses = []string{"redis://127.0.0.1:7433"}
	}
	if options.RetryMax == 0 {
		options.RetryMax = 5 * time.Second
	}
	c := &Client{Options: options, sure: forever, wake: make(chan struct{}, 1)}
	c.leases, c.pending = map[string]*Lease{}, map[string]bool{}
	go c.keep()
	return c
}

// Use is what holds a lease. Its context is done when the lease is lost.
type Use func(ctx context.Context, lease *Lease) error

// Lock holds units of a key.
func (c *Client) Lock(ctx context.Context, key string, ask Ask, use Use) error {
	return c.Do(ctx, Locks, key, ask, use)
}

// Take holds a member of a pool, or of @group.
func (c *Client) Take(ctx context.Context, pool string, ask Ask, use Use) error {
	return c.Do(ctx, Pools, pool, ask, use)
}

// Reserve holds a value of a range, which is renewed in the background.
func (c *Client) Reserve(ctx context.Context, place string, ask Ask, use Use) error {
	return c.Do(ctx, Ranges, place, ask, use)
}

// Regulate holds a lease of a regulator.
func (c *Client) Regulate(ctx context.Context, regulator string, ask Ask, use Use) error {
	return c.Do(ctx, Regulators, regulator, ask, use)
}

// Ask asks a broker for a worker that offers itself.
func (c *Client) Ask(ctx context.Context, broker string, ask Ask, use Use) error {
	return c.Do(ctx, Asks, broker, ask, use)
}

// Offer offers oneself at a broker to clients that ask.
func (c *Client) Offer(ctx context.Context, broker string, ask Ask, use Use) error {
	return c.Do(ctx, Offers, broker, ask, use)
}

// Do acquires, calls, and gives back: as failed if the function fails.
func (c *Client) Do(ctx context.Context, kind Kind, name string, ask Ask, use Use) (err error) {
	lease, err := c.acquire(ctx, ctx, kind, name, ask)
	if err != nil {
		return err
	}
	failed := errors.New("panic")
	defer func() { err = lease.leave(failed) }()
	failed = use(lease.ctx, lease)
	return failed
}

// Acquire asks, and waits if the ask says so. The lease has to be released.
func (c *Client) Acquire(ctx context.Context, kind Kind, name string, ask Ask) (*Lease, error) {
	return c.acquire(ctx, context.Background(), kind, name, ask)
}

func (c *Client) acquire(ctx, of context.Context, kind Kind, name string, ask Ask) (*Lease, error) {
	until := now() + ask.Wait
	for tries := 0; ; tries++ {
		s, err := c.current()
		if err != nil {
			return nil, err
		}
		lease, err := c.acquireOnce(ctx, of, s, kind, name, ask)
		var no *Refused
		if err == nil || ctx.Err() != nil {
			return lease, err
		} else if !errors.As(err, &no) {
			if s.ended() == "" || tries > 1 {
				return nil, err
			}
			continue
		}
		pause := no.RetryAfter + time.Duration(rand.Float64()*float64(no.RetryAfter)/10)
		isLate := ask.Wait != 0 && now()+pause >= until
		if tries >= c.Retries || pause < 0 || pause > c.RetryMax || isLate {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if ask.Wait > 0 {
			ask.Wait = until - now()
		}
	}
}

func (c *Client) acquireOnce(ctx, of context.Context, s *session, kind Kind, name string, ask Ask) (*Lease, error) {
	words, ticket, sent := ask.words(kind, name), "", now()
	r, err := c.call(s, words...)
	for err == nil && (r.text(0) == "await" || r.isPending()) {
		if r.text(0) == "await" {
			ticket = r.text(1)
			c.expect(ticket, true)
			defer c.expect(ticket, false)
		}
		sent = now()
		got := make(chan error, 1)
		var next reply
		go func() {
			answer, err := c.call(s, "AWAIT", ticket, slice)
			next = answer
			got <- err
		}()
		select {
		case err = <-got:
			r = next
		case <-ctx.Done():
			if cancelled, err := c.call(s, "CANCEL", ticket); err != nil || cancelled.number(0) == 0 {
				c.call(s, "RELEASE", ticket)
			}
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, typed(err)
	} else if r.text(0) != "go" {
		return nil, refused(r)
	}
	lease := newLease(of, c, kind, name, r, sent)
	c.mu.Lock()
	c.leases[lease.Ticket] = lease
	c.mu.Unlock()
	if why := s.ended(); why != "" && lease.TTL == 0 {
		c.lose(lease.Ticket, why)
	}
	c.nudge()
	if ctx.Err() != nil {
		lease.Release()
		return nil, ctx.Err()
	}
	return lease, nil
}

// words are those of a command that can be sent again, as it has an id. ASYNC leaves its place
// in the queue to it whatever becomes of the connection.
func (a Ask) words(kind Kind, name string) []any {
	words := []any{string(kind), name}
	add := func(word string, value any) {
		if text := fmt.Sprint(value); text != "" && text != "0" {
			words = append(words, word, text)
		}
	}
	texts := []string{"FLOW", a.Flow, "VALUE", a.Value, "UNIQUE", a.Unique, "DATA", a.Data,
		"HINT", a.Hint, "NOTE", a.Note}
	for at := 0; at < len(texts); at += 2 {
		add(texts[at], texts[at+1])
	}
	add("PER", a.Per)
	add("BUCKETS", a.Buckets)
	add("UNITS", a.Units)
	for _, place := range a.Prefer {
		add("PREFER", place)
	}
	for _, key := range a.Key {
		add("KEY", key)
	}
	if a.TTL == 0 && kind == Ranges {
		a.TTL = time.Minute
	}
	add("TTL", millis(a.TTL))
	if a.Wait != 0 {
		words = append(words, "WAIT", millis(a.Wait))
	}
	waits := a.Wait > 0 || a.Wait == 0 && kind != Locks && kind != Ranges
	if waits {
		words = append(words, "ASYNC")
	}
	if !waits || kind != Ranges {
		id := make([]byte, 16)
		crypto.Read(id)
		words = append(words, "ID", fmt.Sprintf("%x", id))
	}
	return words
}

func (c *Client) expect(ticket string, isExpected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[ticket] = isExpected
	if !isExpected {
		delete(c.pending, ticket)
	}
}

func (c *Client) forget(ticket string) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	lease := c.leases[ticket]
	delete(c.leases, ticket)
	return lease
}

func (c *Client) lose(ticket, why string) {
	if lease := c.forget(ticket); lease != nil {
		lease.tell(why)
	}
}

func (c *Client) held() (all []*Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lease := range c.leases {
		all = append(all, lease)
	}
	return all
}

func (c *Client) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// call sends a command, and again if its connection broke.
func (c *Client) call(s *session, words ...any) (reply, error) {
	for tries := 0; ; tries++ {
		if s == nil {
			current, err := c.current()
			if err != nil {
				return nil, err
			}
			s = current
		}
		value, err := s.do(c, words...)
		said, isAnswer := err.(ServerError)
		if list, ok := value.([]any); ok || err == nil {
			if !ok {
				list = []any{value}
			}
			return list, nil
		} else if !isAnswer && (s.ended() != "" || tries > idleMax) {
			return nil, err
		} else if !isAnswer {
			continue
		} else if !strings.HasPrefix(string(said), "LOST ") {
			if said.has("NOSUCH session") {
				s.end(c, string(said))
			}
			// The answer to the first of two may have been lost.
			if isEnd := words[0] == "RELEASE" || words[0] == "DONE"; isEnd && tries > 0 && said.has(" was released") {
				return nil, nil
			}
			return nil, err
		}
		head, _, _ := strings.Cut(string(said), ": ")
		for _, word := range strings.Fields(head)[1:] {
			ticket, why, _ := strings.Cut(word, "=")
			c.lose(ticket, "the server took it back: "+why)
		}
	}
}

// Close gives everything back, and ends all connections.
func (c *Client) Close() {
	c.mu.Lock()
	s, wasClosed := c.session, c.closed
	c.closed = true
	c.mu.Unlock()
	c.nudge()
	if wasClosed || s == nil || s.ended() != "" {
		return
	}
	for _, lease := range c.held() {
		if lease.TTL > 0 && lease.end() {
			c.call(s, "RELEASE", lease.Ticket)
		}
	}
	s.do(c, "SESSION", "CLOSE", s.id)
	s.end(c, "the client was closed")
}

// current is the session, which is opened if there is none.
func (c *Client) current() (s *session, err error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("rideau: this client is closed")
	} else if c.session != nil && c.session.ended() == "" {
		return c.session, nil
	}
	for _, address := range c.Addresses {
		s = &session{address: address, heard: now()}
		if _, err = s.do(c, "PING"); err == nil {
			c.session, c.sure = s, forever
			if c.TTL > 0 {
				c.sure = now() + c.TTL
			}
			return s, nil
		}
	}
	return nil, err
}

func (s *session) ended() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// do sends a command on a connection that is attached to the session.
func (s *session) do(c *Client, words ...any) (value any, err error) {
	within := timeout
	if strings.HasPrefix(words[0].(string), "AWAIT") {
		within += slice * time.Millisecond
	}
	var to *conn
	s.mu.Lock()
	if last := len(s.idle) - 1; last >= 0 {
		to, s.idle = s.idle[last], s.idle[:last]
	}
	s.mu.Unlock()
	if to == nil {
		if to, err = s.connect(c); err != nil {
			return nil, err
		}
	}
	value, err = to.do(within, words...)
	_, isAnswer := err.(ServerError)
	s.mu.Lock()
	defer s.mu.Unlock()
	if (err == nil || isAnswer) && s.why == "" && len(s.idle) < idleMax {
		s.idle = append(s.idle, to)
	} else {
		// Not at once: the session would end with its last connection.
		time.AfterFunc(patience, func() { to.Close() })
	}
	return value, err
}

// connect makes a connection that is attached to the session; the first one opens it.
func (s *session) connect(c *Client) (*conn, error) {
	to, err := dial(s.address, c.TLS)
	if err != nil {
		return nil, err
	}
	words := []any{"SESSION", "ATTACH", s.id}
	if s.id == "" {
		words = []any{"SESSION", "OPEN", "GRACE", millis(c.Grace)}
		if c.TTL > 0 {
			words = append(words, "TTL", millis(c.TTL))
		}
		if c.Name != "" {
			words = append(words, "NAME", c.Name)
		}
	}
	value, err := to.do(timeout, words...)
	if opened, ok := value.([]any); ok && s.id == "" {
		s.id = reply(opened).text(0)
	}
	if err != nil {
		to.Close()
	}
	return to, err
}

// end is told when it is over, and so is all that it holds. Values are held for their time.
func (s *session) end(c *Client, why string) {
	s.mu.Lock()
	if s.why == "" {
		s.why = why
	}
	idle := s.idle
	s.idle = nil
	s.mu.Unlock()
	for _, to := range idle {
		to.Close()
	}
	for _, lease := range c.held() {
		if lease.TTL == 0 {
			c.lose(lease.Ticket, why)
		}
	}
}

// keep looks after the leases, once a second and when a renewal is due.
func (c *Client) keep() {
	for {
		held, pause := c.held(), time.Second
		c.mu.Lock()
		s, isClosed := c.session, c.closed
		c.mu.Unlock()
		if isClosed {
			return
		}
		for _, lease := range held {
			if due := lease.sureUntil() - lease.TTL/2 - now(); due < pause {
				pause = due
			}
		}
		if s != nil && s.isSick || pause < 20*time.Millisecond {
			pause = 20 * time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-c.wake:
			continue
		}
		if s != nil && s.ended() != "" && len(held) > 0 {
			s, _ = c.current()
		}
		if s != nil && s.ended() == "" {
			s.beat(c)
		}
		c.judge(held, nil)
	}
}

// beat looks after the leases. A session that cannot be reached in time is over.
func (s *session) beat(c *Client) {
	sent, wait := now(), patience
	err := s.look(c, c.held(), sent)
	said, isAnswer := err.(ServerError)
	if errors.Is(err, syscall.ECONNREFUSED) {
		wait = 0
	}
	if c.Grace > wait {
		wait = c.Grace
	}
	if s.isSick = err != nil; !s.isSick {
		s.heard = sent
	} else if isAnswer {
		s.end(c, string(said))
	} else if now() >= s.heard+wait {
		s.end(c, fmt.Sprintf("the server cannot be reached: %v", err))
	}
}

func (s *session) look(c *Client, held []*Lease, sent time.Duration) error {
	left, err := s.do(c, "SURE")
	if err != nil {
		return err
	}
	sure := sent + time.Duration(reply{left}.number(0))*time.Millisecond
	if c.TTL > 0 {
		if _, err := s.do(c, "SESSION", "RENEW"); err != nil {
			return err
		}
		if sure < sent || sent+c.TTL < sure {
			sure = sent + c.TTL
		}
	}
	c.mu.Lock()
	// What was promised before still counts.
	if sure >= sent && (c.sure == forever || sure > c.sure) {
		c.sure = sure
	}
	c.mu.Unlock()
	for _, lease := range held {
		if lease.TTL > 0 && lease.sureUntil()-now() < lease.TTL/2 {
			if err := s.renew(c, lease); err != nil {
				return err
			}
		}
	}
	// Thousands of leases are looked at less often.
	if c.beats++; c.beats%(1+len(held)/2000) != 0 {
		return nil
	}
	value, err := s.do(c, "HELD")
	rows, seen := reply{}, map[string]bool{}
	if err == nil {
		rows = value.([]any)
	}
	for _, it := range rows {
		row := reply(it.([]any))
		if len(row) == 1 { // There are more.
			return nil
		}
		ticket := row.text(2)
		seen[ticket] = true
		c.mu.Lock()
		isOrphan := c.leases[ticket] == nil && !c.pending[ticket] && row.number(4) > 10e6
		c.mu.Unlock()
		// No call waits for it any more. A value is held by its own ticket.
		if isOrphan && row.text(3) == "waits" {
			s.do(c, "CANCEL", ticket)
		} else if isOrphan && row.text(0) != "range" {
			s.do(c, "RELEASE", ticket)
		}
	}
	if err == nil {
		c.judge(held, seen)
	}
	return err
}

// judge tells leases that are lost, not sure to be held, or sure again.
func (c *Client) judge(held []*Lease, seen map[string]bool) {
	for _, lease := range held {
		if seen != nil && !seen[lease.Ticket] && lease.TTL == 0 {
			c.lose(lease.Ticket, "the server took it back")
		} else if lease.sureUntil() <= now() {
			lease.tell("it is not sure to be held any more")
		} else if lease.TTL > 0 || seen[lease.Ticket] {
			lease.tell("")
		}
	}
}

func (s *session) renew(c *Client, lease *Lease) error {
	sent := now()
	value, err := s.do(c, "REFRESH", lease.Ticket, "FENCE", lease.Fence, "TTL", millis(lease.TTL))
	if said, ok := err.(ServerError); ok {
		if typed(err) == err && !said.has("LOST ") {
			c.lose(lease.Ticket, string(said))
		}
		return nil
	}
	if list, ok := value.([]any); ok {
		lease.mu.Lock()
		lease.expires = sent + time.Duration(reply(list).number(1))*time.Millisecond
		lease.mu.Unlock()
	}
	return err
}

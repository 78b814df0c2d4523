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

	"rideau/internal/resp"
)

const (
	timeout  = 1500 * time.Millisecond // for one answer when leases are looked after
	latest   = 5 * time.Second         // for any other
	patience = 2500 * time.Millisecond // without an answer: what a session held is lost then
	slice    = 2000                    // milliseconds that one AWAIT waits, within that time
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
	connecting  sync.Mutex
	mu          sync.Mutex // of all that follows
	id, address string     // of the session; empty if there is none
	turn        int        // one more with each session
	idle        []attached
	leases      map[string]*Lease
	pending     map[string]bool
	sure        time.Duration
	heard, sick time.Duration
	beats       int
	isClosed    bool
}

// An attached connection belongs to the session of this turn.
type attached struct {
	*resp.Conn
	turn int
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
		lease, err := c.acquireOnce(ctx, of, kind, name, ask)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		no, isNo := err.(*Refused)
		if !isNo || tries >= c.Retries || no.RetryAfter < 0 || no.RetryAfter > c.RetryMax {
			return lease, err
		}
		pause := no.RetryAfter + time.Duration(rand.Float64()*float64(no.RetryAfter)/10)
		if ask.Wait != 0 && now()+pause >= until {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if ask.Wait > 0 {
			ask.Wait = until - now()
		}
	}
}

func (c *Client) acquireOnce(ctx, of context.Context, kind Kind, name string, ask Ask) (*Lease, error) {
	over := make(chan struct{})
	defer close(over)
	sent := now()
	r, err := c.call(ask.words(kind, name)...)
	if ticket := r.Text(1); r.Text(0) == "await" {
		c.expect(ticket, true)
		defer c.expect(ticket, false)
		go func() {
			select {
			case <-ctx.Done(): // What waits is answered at once then.
				c.call("CANCEL", ticket)
			case <-over:
			}
		}()
		for err == nil && (r.Text(0) == "await" || isPending(r)) {
			r, err = c.call("AWAIT", ticket, slice)
		}
	}
	if err != nil {
		return nil, typed(err)
	} else if r.Text(0) != "go" {
		return nil, refused(r)
	}
	lease := newLease(of, c, kind, name, r, sent)
	c.mu.Lock()
	c.leases[lease.Ticket] = lease
	c.mu.Unlock()
	if kind == Ranges { // If it was waited for, since when it is granted is not known.
		c.renew(lease)
	}
	c.nudge()
	if ctx.Err() != nil {
		lease.Release()
	}
	return lease, nil
}

// words are those of a command that can be sent again, as it has an id. ASYNC leaves its place
// in the queue to it whatever becomes of the connection.
func (a Ask) words(kind Kind, name string) []any {
	if a.TTL == 0 && kind == Ranges {
		a.TTL = time.Minute
	}
	words := []any{string(kind), name}
	pairs := []any{"PER", a.Per, "BUCKETS", a.Buckets, "UNITS", a.Units, "FLOW", a.Flow, "VALUE", a.Value,
		"UNIQUE", a.Unique, "DATA", a.Data, "HINT", a.Hint, "NOTE", a.Note, "TTL", millis(a.TTL)}
	for _, place := range a.Prefer {
		pairs = append(pairs, "PREFER", place)
	}
	for _, key := range a.Key {
		pairs = append(pairs, "KEY", key)
	}
	for at := 0; at < len(pairs); at += 2 {
		if text := fmt.Sprint(pairs[at+1]); text != "" && text != "0" {
			words = append(words, pairs[at], text)
		}
	}
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
	if c.pending[ticket] = isExpected; !isExpected {
		delete(c.pending, ticket)
	}
}

func (c *Client) lose(ticket, why string) {
	c.mu.Lock()
	lease := c.leases[ticket]
	delete(c.leases, ticket)
	c.mu.Unlock()
	if lease != nil && why != "" {
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

// call sends a command, and again if its connection broke or its session was over.
func (c *Client) call(words ...any) (reply, error) {
	for tries := 0; ; tries++ {
		value, err := c.do(latest, words...)
		said, isAnswer := err.(ServerError)
		isEnd := words[0] == "RELEASE" || words[0] == "DONE"
		if list, ok := value.([]any); ok {
			return list, nil
		} else if err == nil || isEnd && tries > 0 && said.Has(" was released") {
			return reply{value}, nil // The answer to the first of two may have been lost.
		} else if isAnswer && !said.Has("LOST ") && !said.Has("NOSUCH session") || tries > idleMax ||
			errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		c.takeLost(said)
	}
}

// takeLost reads LOST ticket=why ...: sentence, and NOSUCH session.
func (c *Client) takeLost(said ServerError) {
	if said.Has("NOSUCH session") {
		c.over(string(said))
	}
	head, _, _ := strings.Cut(string(said), ": ")
	for _, word := range strings.Fields(head) {
		if ticket, why, ok := strings.Cut(word, "="); ok {
			c.lose(ticket, "the server took it back: "+why)
		}
	}
}

// Close gives everything back, and ends all connections.
func (c *Client) Close() {
	for _, lease := range c.held() {
		if lease.TTL > 0 && lease.end() {
			c.call("RELEASE", lease.Ticket)
		}
	}
	c.mu.Lock()
	id, wasClosed := c.id, c.isClosed
	c.isClosed = true
	c.mu.Unlock()
	if id != "" && !wasClosed {
		c.do(timeout, "SESSION", "CLOSE", id)
	}
	c.over("the client was closed")
	c.nudge()
}

// do sends a command on a connection that is attached to the session.
func (c *Client) do(within time.Duration, words ...any) (any, error) {
	to, err := c.connection(within)
	if err != nil {
		return nil, err
	}
	value, err := to.Do(within, words...)
	_, isAnswer := err.(ServerError)
	c.mu.Lock()
	defer c.mu.Unlock()
	if (err == nil || isAnswer) && to.turn == c.turn && len(c.idle) < idleMax {
		c.idle = append(c.idle, to)
	} else {
		// Not at once: the session would end with its last connection.
		time.AfterFunc(patience, func() { to.Close() })
	}
	return value, err
}

// connection is an idle one or a new one, which is attached to the session or opens one.
func (c *Client) connection(within time.Duration) (to attached, err error) {
	c.mu.Lock()
	if last := len(c.idle) - 1; last >= 0 {
		to, c.idle = c.idle[last], c.idle[:last]
		c.mu.Unlock()
		return to, nil
	}
	c.mu.Unlock()
	c.connecting.Lock()
	defer c.connecting.Unlock()
	c.mu.Lock()
	id, addresses, turn, isClosed := c.id, []string{c.address}, c.turn, c.isClosed
	c.mu.Unlock()
	words := []any{"SESSION", "ATTACH", id}
	if id == "" {
		addresses, words = c.Addresses, []any{"SESSION", "OPEN", "GRACE", millis(c.Grace)}
		if c.TTL > 0 {
			words = append(words, "TTL", millis(c.TTL))
		}
		if c.Name != "" {
			words = append(words, "NAME", c.Name)
		}
	}
	if isClosed && id == "" {
		return to, errors.New("rideau: this client is closed")
	}
	for _, address := range addresses {
		var value any
		if to.Conn, err = resp.Dial(address, c.TLS, within); err != nil {
			continue
		} else if value, err = to.Do(within, words...); err != nil {
			to.Close()
			continue
		}
		if id == "" {
			// In a cluster a lease is sure for a time alone.
			sent := now()
			left, _ := to.Do(within, "SURE")
			c.mu.Lock()
			defer c.mu.Unlock()
			c.id, c.address, c.turn = reply(value.([]any)).Text(0), address, turn+1
			c.sure, c.heard, c.sick = forever, sent, 0
			if ms, ok := left.(int64); ok && ms >= 0 {
				c.sure = sent + time.Duration(ms)*time.Millisecond
			} else if c.TTL > 0 {
				c.sure = sent + c.TTL
			}
			turn++
		}
		to.turn = turn
		return to, nil
	}
	return to, err
}

// over is told when the session is, and so is all that it held. Values are held for their time.
func (c *Client) over(why string) {
	c.mu.Lock()
	idle := c.idle
	c.id, c.idle, c.turn = "", nil, c.turn+1
	c.mu.Unlock()
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
		if c.TTL > 0 && c.TTL/3 < pause {
			pause = c.TTL / 3
		}
		c.mu.Lock()
		isIdle, isClosed, isSick := c.id == "" && len(held) == 0, c.isClosed, c.sick > 0
		c.mu.Unlock()
		for _, lease := range held {
			if due := lease.sureUntil() - lease.TTL/2 - now(); due < pause {
				pause = due
			}
		}
		if isSick || pause < 20*time.Millisecond {
			pause = 20 * time.Millisecond
		}
		select {
		case <-time.After(pause):
			if isClosed {
				return
			} else if !isIdle {
				c.beat(held)
			}
			c.judge(held, nil)
		case <-c.wake:
		}
	}
}

// beat looks after the leases. A session that cannot be reached in time is over.
func (c *Client) beat(held []*Lease) {
	sent, wait := now(), patience
	err := c.look(held, sent)
	said, isAnswer := err.(ServerError)
	if errors.Is(err, syscall.ECONNREFUSED) {
		wait = 0
	}
	c.mu.Lock()
	if err == nil {
		c.heard, c.sick = sent, 0
	} else if c.sick == 0 {
		c.sick = sent
	}
	isLate := now() >= c.sick+wait && now() >= c.heard+c.Grace
	c.mu.Unlock()
	if isAnswer {
		c.takeLost(said)
	} else if err != nil && isLate {
		c.over(fmt.Sprintf("the server cannot be reached: %v", err))
	}
}

func (c *Client) look(held []*Lease, sent time.Duration) error {
	left, err := c.do(timeout, "SURE")
	sure := sent + time.Duration(reply{left}.Number(0))*time.Millisecond
	if c.TTL > 0 && err == nil {
		if _, err = c.do(timeout, "SESSION", "RENEW"); sure < sent || sent+c.TTL < sure {
			sure = sent + c.TTL
		}
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	// What was promised before still counts.
	if sure >= sent && (c.sure == forever || sure > c.sure) {
		c.sure = sure
	}
	c.mu.Unlock()
	for _, lease := range held {
		if lease.TTL > 0 && lease.sureUntil()-now() < lease.TTL/2 {
			c.renew(lease)
		}
	}
	// Thousands of leases are looked at less often.
	if c.beats++; c.beats%(1+len(held)/2000) != 0 {
		return nil
	}
	value, err := c.do(timeout, "HELD")
	rows, _ := value.([]any)
	seen := map[string]bool{}
	for _, it := range rows {
		row := reply(it.([]any))
		if len(row) == 1 { // There are more.
			return nil
		}
		ticket := row.Text(2)
		seen[ticket] = true
		c.mu.Lock()
		isOrphan := c.leases[ticket] == nil && !c.pending[ticket] && row.Number(4) > 10e6
		c.mu.Unlock()
		// No call waits for it any more. A value is held by its own ticket.
		if isOrphan && row.Text(3) == "waits" {
			c.do(timeout, "CANCEL", ticket)
		} else if isOrphan && row.Text(0) != "range" {
			c.do(timeout, "RELEASE", ticket)
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

func (c *Client) renew(lease *Lease) {
	sent := now()
	value, err := c.do(timeout, "REFRESH", lease.Ticket, "FENCE", lease.Fence, "TTL", millis(lease.TTL))
	said, isAnswer := err.(ServerError)
	if list, ok := value.([]any); ok {
		lease.mu.Lock()
		lease.expires = sent + time.Duration(reply(list).Number(1))*time.Millisecond
		lease.mu.Unlock()
	} else if isAnswer && typed(err) == err && !said.Has("LOST ") {
		c.lose(lease.Ticket, string(said))
	}
}

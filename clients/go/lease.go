package rideau

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"rideau/internal/resp"
)

type reply = resp.Reply

// A ServerError is an error of the server that is no refusal: a mistake, or a missing right.
type ServerError = resp.Error

const forever = time.Duration(math.MaxInt64)

// A LeaseLost says that what was held is no longer held, or that it is not sure that it is.
type LeaseLost struct{ Why string }

func (e *LeaseLost) Error() string { return e.Why }

// A Refused is a no of the server.
type Refused struct {
	Why        string        // its sentence
	Reason     string        // the limit, or the rule of the queue, in one word
	RetryAfter time.Duration // when a new ask can succeed; negative if that is not known
	ID         string        // what `rideau explain` takes
	Outcome    string        // full, timeout, shed, none or busy
	Waited     time.Duration
}

func (e *Refused) Error() string { return e.Why }

// refused reads word, waited, why, reason, retry_after, id; none has free and all values first.
func refused(r reply) *Refused {
	no, first := &Refused{Outcome: r.Text(0), Waited: r.Micros(1), RetryAfter: -1}, 2
	if no.Outcome == "none" {
		first, no.Waited = 3, 0
	}
	no.Why, no.Reason, no.ID = r.Text(first), r.Text(first+1), r.Text(first+3)
	if no.Why == "" {
		no.Why, no.Reason = "nothing is free: "+no.Outcome, no.Outcome
	}
	if r.Text(first+2) != "" {
		no.RetryAfter = r.Micros(first + 2)
	}
	return no
}

// typed makes refusals of limits, and of nodes that cannot answer now.
func typed(err error) error {
	said, _ := err.(ServerError)
	code, _, _ := strings.Cut(string(said), " ")
	switch code {
	case "BUSY", "READONLY", "CLUSTERDOWN", "MISCONF":
		no := &Refused{Why: string(said), Reason: strings.ToLower(code), RetryAfter: -1, Outcome: "busy"}
		if at := strings.LastIndex(no.Why, " [d-"); at > 0 {
			no.ID = strings.Trim(no.Why[at+1:], "[]")
		}
		return no
	}
	return err
}

// A Lease is something that is held until it is released, or lost. Every call fails then.
type Lease struct {
	Kind        Kind
	Name        string
	Ticket      string
	Value       string        // a member, a value of a range, or what the other party brought
	Fence       int64         // of a lock or a value: it grows with each grant
	Unit, Units int64         // of a lock: the number of the unit, of so many
	Lead        time.Duration // of a match: how much earlier than the other party it came
	TTL         time.Duration // of a value: it is renewed for so long each time

	client          *Client
	ctx             context.Context
	cancel          context.CancelFunc
	mu              sync.Mutex
	expires         time.Duration
	why             string
	isLost, isEnded bool
	watch           []func(*Lease)
}

func newLease(ctx context.Context, client *Client, kind Kind, name string, r reply, sent time.Duration) *Lease {
	it := &Lease{Kind: kind, Name: name, Ticket: r.Text(1), Value: r.Text(2), client: client}
	it.ctx, it.cancel = context.WithCancel(ctx)
	switch kind {
	case Locks:
		it.Value, it.Unit, it.Units, it.Fence = "", r.Number(2), r.Number(3), r.Number(4)
	case Ranges:
		r = r[len(r)-7:] // The ticket of an ask that was awaited comes first.
		it.Value, it.Ticket, it.Fence = r.Text(1), r.Text(2), r.Number(6)
		it.TTL = time.Duration(r.Number(3)) * time.Millisecond
		it.expires = sent + it.TTL
	case Regulators:
		it.Value, it.Lead = "", r.Micros(2)
	case Asks, Offers:
		it.Lead = r.Micros(3)
	}
	return it
}

// Context is done when the lease is lost or ends.
func (it *Lease) Context() context.Context { return it.ctx }

// OnChange has this called when the lease is lost, and when it is sure to be held again.
func (it *Lease) OnChange(call func(*Lease)) {
	it.mu.Lock()
	defer it.mu.Unlock()
	it.watch = append(it.watch, call)
}

// SureUntil is up to when it may be used; the zero time without a cluster or a time of its own.
func (it *Lease) SureUntil() time.Time {
	if it.sureUntil() == forever {
		return time.Time{}
	}
	return time.Now().Add(it.sureUntil() - now())
}

func (it *Lease) sureUntil() time.Duration {
	mu, until := &it.client.mu, &it.client.sure
	if it.TTL > 0 {
		mu, until = &it.mu, &it.expires
	}
	mu.Lock()
	defer mu.Unlock()
	return *until
}

// Err is a *LeaseLost if it is lost, or not sure to be held.
func (it *Lease) Err() error {
	if it.sureUntil() <= now() {
		it.tell("it is not sure to be held any more")
	}
	it.mu.Lock()
	defer it.mu.Unlock()
	if !it.isLost {
		return nil
	}
	return &LeaseLost{fmt.Sprintf("%s %s (%s): %s", it.Kind, it.Name, it.Ticket, it.why)}
}

// tell that it is lost; or, without a reason, that it is sure to be held again.
func (it *Lease) tell(why string) {
	it.mu.Lock()
	if it.isEnded || it.isLost == (why != "") {
		it.mu.Unlock()
		return
	}
	it.isLost, it.why = why != "", why
	watch := it.watch
	it.mu.Unlock()
	if why != "" {
		it.cancel()
	}
	for _, call := range watch {
		call(it)
	}
}

func (it *Lease) end() bool {
	it.client.lose(it.Ticket, "")
	it.mu.Lock()
	defer it.mu.Unlock()
	isFirst := !it.isEnded
	it.isEnded = true
	it.cancel()
	return isFirst
}

// Release gives it back.
func (it *Lease) Release() error { return it.giveBack("RELEASE", it.Ticket) }

// Fail gives it back as failed: a member is replaced, and a breaker counts it.
func (it *Lease) Fail(reason string) error {
	return it.giveBack("RELEASE", it.Ticket, "FAIL", reason)
}

// Done ends a match well. The other party gets the payload.
func (it *Lease) Done(payload []byte) error { return it.giveBack("DONE", it.Ticket, payload) }

func (it *Lease) giveBack(words ...any) error {
	if err := it.Err(); err != nil || !it.end() {
		return err
	}
	if _, err := it.client.call(words...); err != nil {
		return &LeaseLost{fmt.Sprintf("%s %s: %v", it.Kind, it.Name, err)}
	}
	return nil
}

// Renew says whether the lease of a regulator goes on. If not, it has ended.
func (it *Lease) Renew() (bool, error) {
	if err := it.Err(); err != nil {
		return false, err
	}
	r, err := it.client.call("REG.CONTINUE", it.Ticket)
	goes := r.Text(0) == "go"
	if err == nil && !goes {
		it.end()
	}
	return goes, err
}

// Ended waits for what the other party of a match ends it with; *LeaseLost if it went away.
func (it *Lease) Ended(ctx context.Context) (string, error) {
	for ctx.Err() == nil {
		if err := it.Err(); err != nil {
			return "", err
		}
		r, err := it.client.call("AWAIT.END", it.Ticket, 500)
		if err == nil && isPending(r) {
			continue
		}
		it.end()
		if r.Text(0) == "down" {
			err = &LeaseLost{"the other party went away: " + r.Text(1)}
		}
		return r.Text(1), err
	}
	return "", ctx.Err()
}

// leave gives back what a function had, which may have failed.
func (it *Lease) leave(failed error) error {
	it.mu.Lock()
	isOver := it.isEnded
	it.mu.Unlock()
	if isOver {
		return failed
	}
	end := it.Release
	if failed != nil && it.Kind != Locks && it.Kind != Ranges {
		end = func() error { return it.Fail("failed") }
	} else if it.Kind == Asks || it.Kind == Offers {
		end = func() error { return it.Done(nil) }
	}
	if err := end(); err != nil && (failed == nil || failed == context.Canceled) {
		return err
	}
	return failed
}

// isPending says that the wait of an AWAIT is over, and the ask goes on.
func isPending(r reply) bool { return r.Text(0) == "timeout" && r.Text(3) == "waits" }

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

// Ten tasks, as docs/clients.md shows them. It is run with the address of a server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"rideau"
)

var client = rideau.New(rideau.Options{Addresses: []string{os.Args[1]}})

var done = 0

func work(ctx context.Context, lease *rideau.Lease) error {
	done++
	return ctx.Err()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx, wait, seconds := context.Background(), rideau.Wait, time.Second
	var err error

	// task: hold a lock, and wait for it for at most ten seconds
	err = client.Lock(ctx, "job", wait(10*seconds), work)
	// end
	must(err)

	// task: hold it now or not at all, and say why not
	err = client.Lock(ctx, "job", rideau.Ask{}, work)
	var no *rideau.Refused
	if errors.As(err, &no) {
		fmt.Println(no, no.RetryAfter)
	}
	// end
	must(err)

	// task: let three hold it at a time
	err = client.Lock(ctx, "disk", rideau.Ask{Per: 3, Wait: 10 * seconds}, work)
	// end
	must(err)

	// task: lend one of several licences
	err = client.Take(ctx, "cad", wait(10*seconds), work) // lease.Value is the licence
	// end
	must(err)

	// task: reserve an address for as long as it is used
	err = client.Reserve(ctx, "office", rideau.Ask{TTL: 30 * seconds}, work)
	// end
	must(err)

	served := make(chan error)
	go func() {
		// task: serve one order as a worker
		err := client.Offer(ctx, "orders", wait(10*seconds), func(ctx context.Context, match *rideau.Lease) error {
			return match.Done([]byte("shipped " + match.Value))
		})
		// end
		served <- err
	}()
	// task: hand an order to a worker, and wait for its answer
	order := rideau.Ask{Value: "order 1", Wait: 10 * seconds}
	err = client.Ask(ctx, "orders", order, answered)
	// end
	must(err)
	must(<-served)

	// task: keep to the limit of a service
	err = client.Regulate(ctx, "mail", wait(10*seconds), work)
	// end
	must(err)

	pages := 3
	// task: stop when the lock is lost
	err = client.Lock(ctx, "job", wait(10*seconds), func(ctx context.Context, lease *rideau.Lease) error {
		for page := 0; page < pages && ctx.Err() == nil; page++ {
			work(ctx, lease)
		}
		return nil // what Lock returns says whether it was lost
	})
	// end
	must(err)

	// task: have the storage refuse a holder that was paused for too long
	err = client.Lock(ctx, "job", wait(10*seconds), work) // lease.Fence is what it compares
	// end
	must(err)
	if done != 10 {
		panic(done)
	}
	client.Close()
}

func answered(ctx context.Context, match *rideau.Lease) error {
	answer, err := match.Ended(ctx)
	fmt.Println(answer)
	return err
}

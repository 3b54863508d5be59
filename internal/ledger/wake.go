package ledger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/db"
)

// wakeChannel is the notification channel on PostgreSQL.
const wakeChannel = "zopday_work"

// broadcaster wakes everybody in this process who waits for work.
type broadcaster struct {
	mu      sync.Mutex
	waiters map[chan struct{}]bool
}

func newBroadcaster() *broadcaster { return &broadcaster{waiters: make(map[chan struct{}]bool)} }

func (b *broadcaster) join(ctx context.Context) chan struct{} {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	b.waiters[c] = true
	b.mu.Unlock()
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		delete(b.waiters, c)
		b.mu.Unlock()
	})
	return c
}

func (b *broadcaster) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.waiters {
		nudge(c)
	}
}

// nudge leaves one word in c; a second one before it is read adds nothing.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Notify tells the workers that there is work. It is called after the commit
// that made it, and never within a checkpoint's transaction: PostgreSQL commits
// transactions that notify one after the other.
func (l *Ledger) Notify(ctx context.Context) error {
	l.wake.wake()
	if l.d.Dialect() != db.Postgres {
		return nil
	}
	if _, err := l.d.Exec(ctx, `SELECT pg_notify($1, '')`, wakeChannel); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}

// Wakeups returns a channel on which a word arrives when there may be work, for
// as long as ctx lasts; it is never closed. On PostgreSQL the listening
// connection is made again when it breaks, and then a word is sent too, for what
// may have been missed. A word can still be lost: workers also poll.
func (l *Ledger) Wakeups(ctx context.Context) <-chan struct{} {
	c := l.wake.join(ctx)
	if l.d.Dialect() == db.Postgres {
		go l.listen(ctx, c)
	}
	return c
}

func (l *Ledger) listen(ctx context.Context, c chan struct{}) {
	const least, most = 200 * time.Millisecond, 10 * time.Second
	pause := least
	for ctx.Err() == nil {
		_ = l.d.Listen(ctx, wakeChannel, func() { // the error is that the connection broke, which is mended below
			pause = least
			nudge(c)
		})
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, most)
	}
}

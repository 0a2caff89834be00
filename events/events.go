// SPDX-License-Identifier: BSD-2-Clause

// Package events is the node's event log: a short ring of what happened here,
// and its live subscribers. It owns the order of events and nothing else;
// whoever makes a thing happen publishes it, the API renders it.
package events

import (
	"strconv"
	"sync"
	"time"

	"github.com/docker/docker/api/types/events"
)

// Ring is how many past events are kept for `docker events --since`, Docker's
// own number.
const Ring = 256

// subscriberBuffer bounds what a slow subscriber may lag behind before it is
// cut off; a client that is cut off sees its stream end and can ask again
// with --since.
const subscriberBuffer = 1024

// Log is the event log of one node. The zero value is ready to use.
type Log struct {
	mu   sync.Mutex
	past []events.Message
	subs map[chan events.Message]struct{}
}

// Publish appends an event and hands it to every subscriber. It never blocks.
// Time fields left zero are filled in with the current time.
func (l *Log) Publish(m events.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.TimeNano == 0 {
		now := time.Now()
		m.Time, m.TimeNano = now.Unix(), now.UnixNano()
	}
	if m.Scope == "" {
		m.Scope = "local"
	}
	l.past = append(l.past, m)
	if len(l.past) > Ring {
		l.past = append(l.past[:0:0], l.past[len(l.past)-Ring:]...)
	}
	for ch := range l.subs {
		select {
		case ch <- m:
		default:
			delete(l.subs, ch)
			close(ch)
		}
	}
}

// Subscribe returns the events kept since the given time (none when since is
// zero) and a channel of those to come. The channel is closed when the
// subscriber lags too far behind or calls cancel.
func (l *Log) Subscribe(since time.Time) (past []events.Message, live <-chan events.Message, cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !since.IsZero() {
		for _, m := range l.past {
			if m.TimeNano >= since.UnixNano() {
				past = append(past, m)
			}
		}
	}
	ch := make(chan events.Message, subscriberBuffer)
	if l.subs == nil {
		l.subs = make(map[chan events.Message]struct{})
	}
	l.subs[ch] = struct{}{}
	return past, ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if _, live := l.subs[ch]; live {
			delete(l.subs, ch)
			close(ch)
		}
	}
}

// Container makes a container event. Attributes hold the container's labels,
// its image and its name, as Docker's do.
func Container(action events.Action, id string, attributes map[string]string) events.Message {
	return events.Message{Type: events.ContainerEventType, Action: action, Actor: events.Actor{ID: id, Attributes: attributes},
		// The three fields below are deprecated by Docker and still what older clients read.
		Status: string(action), ID: id, From: attributes["image"]}
}

// ExitCode renders an exit code as an event attribute.
func ExitCode(code int) string { return strconv.Itoa(code) }

// SPDX-License-Identifier: BSD-2-Clause

package events

import (
	"testing"
	"time"

	"github.com/docker/docker/api/types/events"
)

func TestSubscribersSeeEventsInOrder(t *testing.T) {
	var l Log
	past, live, cancel := l.Subscribe(time.Time{})
	if len(past) != 0 {
		t.Errorf("%d past events without a since", len(past))
	}
	for _, id := range []string{"a", "b"} {
		l.Publish(Container(events.ActionStart, id, map[string]string{"image": "app:1"}))
	}
	for _, id := range []string{"a", "b"} {
		if m := <-live; m.Actor.ID != id || m.From != "app:1" || m.TimeNano == 0 || m.Scope != "local" {
			t.Errorf("got %+v, want %s", m, id)
		}
	}
	cancel()
	cancel() // a second time is harmless
	if _, open := <-live; open {
		t.Error("the channel is open after cancel")
	}
	l.Publish(events.Message{}) // to nobody
}

func TestPastIsARingAndSinceSelects(t *testing.T) {
	var l Log
	for i := range Ring + 10 {
		l.Publish(events.Message{TimeNano: int64(i + 1)})
	}
	past, _, cancel := l.Subscribe(time.Unix(0, 1))
	defer cancel()
	if len(past) != Ring || past[0].TimeNano != 11 {
		t.Errorf("%d events kept, the first of %d", len(past), past[0].TimeNano)
	}
	late, _, cancelLate := l.Subscribe(time.Unix(0, Ring+9))
	defer cancelLate()
	if len(late) != 2 {
		t.Errorf("%d events since the last but one", len(late))
	}
}

// A reader that does not read never holds up who publishes; it is cut off.
func TestSlowSubscriberIsCutOff(t *testing.T) {
	var l Log
	_, live, cancel := l.Subscribe(time.Time{})
	defer cancel()
	for range subscriberBuffer + 1 {
		l.Publish(events.Message{})
	}
	n := 0
	for range live {
		n++
	}
	if n != subscriberBuffer {
		t.Errorf("%d events before it was cut off, want %d", n, subscriberBuffer)
	}
}

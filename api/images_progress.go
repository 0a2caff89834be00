// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/docker/docker/pkg/jsonmessage"
)

const (
	// progressPeriod is how often one layer's progress is told at most.
	progressPeriod = 100 * time.Millisecond
	// progressBound is how long a client may take to accept a line before it
	// is given up, and with it what it asked for.
	progressBound = 30 * time.Second
)

// progressStream tells a client how a pull or a load goes, in Docker's stream
// of JSON messages. It is safe for concurrent use. The answer begins with the
// first message: until then an error can still be an HTTP error.
type progressStream struct {
	w      http.ResponseWriter
	giveUp func() // the client is gone

	mu    sync.Mutex
	begun bool
	gone  bool
	told  map[string]toldProgress // by layer
}

// toldProgress is what was told last of one layer.
type toldProgress struct {
	status string
	at     time.Time
}

func newProgressStream(w http.ResponseWriter, giveUp func()) *progressStream {
	return &progressStream{w: w, giveUp: giveUp, told: map[string]toldProgress{}}
}

// progress is an image.Progress. Steps of the same kind are thinned out; the
// first and the last of a kind are always told.
func (p *progressStream) progress(status, id string, current, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := jsonmessage.JSONMessage{Status: status, ID: id}
	if id != "" {
		now := time.Now()
		last := p.told[id]
		done := total > 0 && current >= total || total == 0
		if last.status == status && !done && now.Sub(last.at) < progressPeriod {
			return
		}
		p.told[id] = toldProgress{status, now}
		m.Progress = &jsonmessage.JSONProgress{Current: current, Total: total}
	}
	p.send(&m)
}

// status tells something that has no progress.
func (p *progressStream) status(id, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send(&jsonmessage.JSONMessage{ID: id, Status: text})
}

// text tells a line that the client prints as it is.
func (p *progressStream) text(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send(&jsonmessage.JSONMessage{Stream: line})
}

// end ends the stream: with err in its last line, or as the handler's own
// error when nothing was told yet.
func (p *progressStream) end(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if !p.begun {
			return err
		}
		p.send(&jsonmessage.JSONMessage{Error: &jsonmessage.JSONError{Message: err.Error()}, ErrorMessage: err.Error()})
	}
	if p.begun {
		_ = http.NewResponseController(p.w).SetWriteDeadline(time.Time{})
	}
	return nil
}

// send writes one message; the caller holds the lock.
func (p *progressStream) send(m *jsonmessage.JSONMessage) {
	if p.gone {
		return
	}
	ctl := http.NewResponseController(p.w)
	_ = ctl.SetWriteDeadline(time.Now().Add(progressBound)) // not every connection has one
	if !p.begun {
		p.begun = true
		p.w.Header().Set("Content-Type", "application/json")
		p.w.WriteHeader(http.StatusOK)
	}
	line, err := json.Marshal(m)
	if err == nil {
		_, err = p.w.Write(append(line, '\r', '\n'))
	}
	if err == nil {
		err = ctl.Flush()
	}
	if err != nil {
		p.gone = true
		p.giveUp()
	}
}

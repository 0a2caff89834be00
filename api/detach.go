// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"errors"
	"io"
	"sync"

	"github.com/moby/term"
)

// defaultDetachKeys leave a terminal without ending what runs in it: ctrl-p ctrl-q.
const defaultDetachKeys = "ctrl-p,ctrl-q"

// parseDetachKeys reads a detachKeys parameter; "" is the default sequence.
func parseDetachKeys(keys string) ([]byte, error) {
	if keys == "" {
		keys = defaultDetachKeys
	}
	b, err := term.ToBytes(keys)
	if err != nil {
		return nil, errInvalid("Invalid detach keys (%s) provided", keys)
	}
	return b, nil
}

// detachReader is a terminal's input. When the detach keys come by, detached
// is closed and the input rests: an end would be read as the user's own ctrl-d.
type detachReader struct {
	in       io.Reader
	once     sync.Once
	detached chan struct{}
	// rest ends the rest: the reader's consumer is done.
	rest <-chan struct{}
}

func newDetachReader(in io.Reader, keys []byte, rest <-chan struct{}) *detachReader {
	return &detachReader{in: term.NewEscapeProxy(in, keys), detached: make(chan struct{}), rest: rest}
}

func (d *detachReader) Read(p []byte) (int, error) {
	n, err := d.in.Read(p)
	var escape term.EscapeError
	if !errors.As(err, &escape) {
		return n, err
	}
	d.once.Do(func() { close(d.detached) })
	<-d.rest
	return 0, io.EOF
}

// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
)

// maxBody bounds a JSON request body. The largest thing a client sends as JSON
// is a service spec, which SwarmKit's own store limits to 1.5 MiB.
const maxBody = 4 << 20

// decodeJSON reads the body into out. An absent or empty body, a Content-Type
// that is not JSON, malformed JSON, anything after it and a NUL in any text are
// refused.
func decodeJSON(w http.ResponseWriter, r *http.Request, out any) error {
	empty, err := decodeBody(w, r, out)
	if err == nil && empty {
		return errInvalid("invalid JSON: got EOF while reading request body")
	}
	return err
}

// decodeOptionalJSON is decodeJSON where the body may be absent, for requests
// whose every field has a default; out is then left alone.
func decodeOptionalJSON(w http.ResponseWriter, r *http.Request, out any) error {
	_, err := decodeBody(w, r, out)
	return err
}

func decodeBody(w http.ResponseWriter, r *http.Request, out any) (empty bool, err error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return true, nil
	}
	contentType := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false, errInvalid("malformed Content-Type header (%s): %v", contentType, err)
	}
	if media != "application/json" {
		return false, errInvalid("unsupported Content-Type header (%s): must be 'application/json'", contentType)
	}
	if w != nil {
		c := http.NewResponseController(w)
		_ = c.SetReadDeadline(time.Now().Add(bodyTimeout)) // not every connection has deadlines
		defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	if err := dec.Decode(out); err != nil {
		return false, jsonError(err)
	}
	switch _, err := dec.Token(); {
	case err == nil:
		return false, errInvalid("unexpected content after JSON")
	case errors.Is(err, io.EOF):
		return false, admitText(out)
	default:
		if tooBig := new(http.MaxBytesError); errors.As(err, &tooBig) {
			return false, jsonError(err)
		}
		return false, errInvalid("unexpected content after JSON")
	}
}

func jsonError(err error) error {
	if tooBig := new(http.MaxBytesError); errors.As(err, &tooBig) {
		return fmt.Errorf("request body is larger than %d bytes: %w", tooBig.Limit, err)
	}
	if errors.Is(err, io.EOF) {
		return errInvalid("invalid JSON: got EOF while reading request body")
	}
	return errdefs.ErrInvalidArgument.WithMessage("invalid JSON: " + err.Error())
}

// writeJSON answers with v as JSON.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// flushWriter sends each write to the client at once, for streams.
type flushWriter struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// newFlushWriter begins a streamed answer with status 200: the headers set so
// far are sent at once, so that the client knows that the stream is open.
func newFlushWriter(w http.ResponseWriter) *flushWriter {
	w.WriteHeader(http.StatusOK)
	f := &flushWriter{w: w, c: http.NewResponseController(w)}
	_ = f.c.Flush()
	return f
}

func (f *flushWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.c.Flush()
	}
	return n, err
}

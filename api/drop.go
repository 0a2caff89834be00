// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"io"
	"net/http"
	"time"
)

// answerBeforeBody lets an answer go out while the client is still sending: left
// to itself the server would first read a part of what comes, and then close the
// connection under a client that writes all of it before it reads anything.
func answerBeforeBody(w http.ResponseWriter) {
	_ = http.NewResponseController(w).EnableFullDuplex() // not every connection can
}

// dropBody reads what a client still sends of a request that was answered
// already, and forgets it. Without that the client's write fails, and many never
// look for the answer that says why. Whoever takes longer than a body may take
// is cut off.
func dropBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.Header.Get("Expect") != "" {
		return // nothing comes, or nothing before the client has seen the answer
	}
	c := http.NewResponseController(w)
	_ = c.Flush()
	if c.SetReadDeadline(time.Now().Add(bodyTimeout)) != nil {
		return // it cannot be bounded
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = c.SetReadDeadline(time.Time{})
}

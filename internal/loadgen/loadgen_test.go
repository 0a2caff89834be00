// SPDX-License-Identifier: BSD-2-Clause

package loadgen

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// Every failure is counted, whatever kind it is of.
func TestFailuresAreCounted(t *testing.T) {
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			w.WriteHeader(503)
		case 1:
			panic(http.ErrAbortHandler) // no answer
		case 2:
			w.Header().Set("Content-Length", "100") // half an answer
			fmt.Fprint(w, "half")
		default:
			fmt.Fprintln(w, "one")
		}
	}))
	defer s.Close()
	r := Run(context.Background(), Config{Addr: s.Listener.Addr().String(), Rate: 1000, Most: 40})
	if r.Requests != 40 || len(r.Failures) != 30 || r.Bodies["one"] != 10 {
		t.Errorf("%s", r)
	}
	if !strings.Contains(r.String(), "30 failed") || !strings.Contains(r.String(), "10 x 503 Service Unavailable") {
		t.Errorf("%s", r)
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if r := Run(context.Background(), Config{Addr: l.Addr().String(), Rate: 1000, Most: 10}); len(r.Failures) != 10 {
		t.Errorf("%s", r)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := Run(ctx, Config{Addr: "127.0.0.1:1", Rate: 10}); r.Requests != 0 {
		t.Errorf("%s", r)
	}
}

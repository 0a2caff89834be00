// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPing(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if err := ping(socket); err == nil || !strings.Contains(err.Error(), "no daemon answers on "+socket) {
		t.Errorf("no socket: %v", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	status := http.StatusOK
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/_ping" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	if err := ping(socket); err != nil {
		t.Error(err)
	}
	status = http.StatusServiceUnavailable
	if err := ping(socket); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a daemon that does not work: %v", err)
	}
}

func TestIsPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if !isPipe(w) || isPipe(null) {
		t.Errorf("pipe %v, null %v", isPipe(w), isPipe(null))
	}
}

// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"log"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// secrets are what no record may repeat in its detail.
const secrets = "postgres://admin:hunter2@db.internal:5432/shop"

// handleFaults serves what a health check must cope with:
//
//	GET /hang            takes the request and never answers
//	GET /redirect?to=U   302 to U
//	GET /stream          200, and a body that never ends
//	GET /huge            200, and 5 MiB
//	GET /status?code=N   that status
//	GET /secret          503, with a credential in the body and in the log
//	GET /tls             200 to what a proxy took by TLS, else 301 to https
//	GET /hits?of=/P      how often /P was asked for
func handleFaults() {
	http.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	http.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.FormValue("to"), http.StatusFound)
	})
	http.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			fmt.Fprint(w, ".")
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	http.HandleFunc("/huge", func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 64<<10)
		for range 5 << 20 / len(part) {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	http.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.FormValue("code"))
		if err != nil {
			code = http.StatusBadRequest
		}
		w.WriteHeader(code)
	})
	http.HandleFunc("/secret", func(w http.ResponseWriter, _ *http.Request) {
		log.Print("no connection to " + secrets)
		http.Error(w, secrets, http.StatusServiceUnavailable)
	})
	http.HandleFunc("/tls", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forwarded-Proto") != "https" {
			http.Redirect(w, r, "https://"+r.Host+r.URL.Path, http.StatusMovedPermanently)
		}
	})
}

// counted counts requests by path, and answers /hits with the counts.
func counted(next http.Handler) http.Handler {
	var mu sync.Mutex
	hits := make(map[string]int)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hits[r.URL.Path]++
		n := hits[r.FormValue("of")]
		mu.Unlock()
		if r.URL.Path == "/hits" {
			fmt.Fprintln(w, n)
			return
		}
		next.ServeHTTP(w, r)
	})
}

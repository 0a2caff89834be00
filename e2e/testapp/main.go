// SPDX-License-Identifier: BSD-2-Clause

// Command testapp is what runs in the containers of the e2e tests: an HTTP
// server whose health is a file.
//
//	GET /        the container's host name
//	GET /health  200 while /tmp/bad does not exist, else 503
//	GET /bad     makes it unhealthy from now on
//	GET /slow    answers after 5 s, or ?for=20s
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	addr := flag.String("addr", ":80", "listen address")
	delay := flag.Duration("delay", 0, "wait before listening")
	udp := flag.String("udp", "", "also echo UDP here, with the host name")
	probe := flag.String("probe", "", "be the probe: GET this URL, exit 0 on 200")
	flag.Parse()
	if *probe != "" {
		resp, err := http.Get(*probe)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(resp.Status)
		if resp.StatusCode != http.StatusOK {
			os.Exit(1)
		}
		return
	}
	host, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	time.Sleep(*delay)
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, host) })
	http.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat("/tmp/bad"); err == nil {
			http.Error(w, "bad", http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) {
		if err := os.WriteFile("/tmp/bad", nil, 0o600); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	http.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		d := 5 * time.Second
		if asked, err := time.ParseDuration(r.FormValue("for")); err == nil {
			d = asked
		}
		time.Sleep(d)
		fmt.Fprintln(w, host)
	})
	handleFaults()
	if *udp != "" {
		go echo(*udp, host)
	}
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %s", l.Addr())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	srv := &http.Server{Handler: counted(http.DefaultServeMux)}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-stop
		log.Print("stopping")
		// The listener goes at once, requests under way are answered.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			log.Print(err)
		}
	}()
	if err := srv.Serve(l); err != http.ErrServerClosed {
		log.Fatal(err)
	}
	<-stopped
}

func echo(addr, host string) {
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, 1500)
	for {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := c.WriteTo([]byte(host), from); err != nil {
			log.Print(err)
		}
	}
}

// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// pingBound is how long a daemon may take to answer.
const pingBound = 5 * time.Second

// ping asks whether a daemon answers on the socket.
func ping(socket string) error {
	client := http.Client{Timeout: pingBound, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	resp, err := client.Get("http://satld/_ping")
	if err != nil {
		return fmt.Errorf("no daemon answers on %s: %w", socket, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the daemon on %s answers %s", socket, resp.Status)
	}
	return nil
}

// isPipe tells that somebody reads what is written to f, as daemon(8) does.
func isPipe(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeNamedPipe != 0
}

// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/cli/cli/command"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/client"
)

// maxAnswer bounds what is read of an answer of satld's own API, in bytes.
const maxAnswer = 64 << 20

// ask makes one request to satld's own API (/satl/v1 + path) over the
// connection of docker's client. in is sent as JSON unless it is nil, and the
// answer is read into out unless that is nil. A refusal is an error in the
// daemon's words; one that there is no such thing is ErrNotFound.
func ask(ctx context.Context, docker command.Cli, method, path string, in, out any) error {
	resp, err := request(ctx, docker, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("the answer to %s %s is not that of a satld: %w", method, path, err)
	}
	return nil
}

// request makes one request as ask does; what is no refusal is the caller's to
// read and close.
func request(ctx context.Context, docker command.Cli, method, path string, in any) (*http.Response, error) {
	if name, ok := slashed(path); ok {
		return nil, errdefs.ErrNotFound.WithMessage(fmt.Sprintf("nothing is called %s: no name has a / in it", name))
	}
	c := docker.Client()
	host, err := client.ParseHostURL(c.DaemonHost())
	if err != nil {
		return nil, err
	}
	target := url.URL{Scheme: "http", Host: host.Host}
	if host.Scheme == "unix" {
		target.Host = client.DummyHost // the transport dials the socket whatever it is called
	}
	body := io.Reader(http.NoBody)
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String()+"/satl/v1"+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.HTTPClient().Do(req)
	if err != nil {
		if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
			return nil, fmt.Errorf("Cannot connect to satld at %s. Is it running?", c.DaemonHost())
		}
		return nil, err
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	return nil, refusal(resp.StatusCode, data)
}

// refusal is an answer that is an error.
func refusal(status int, body []byte) error {
	var e types.ErrorResponse
	if err := json.Unmarshal(body, &e); err != nil || e.Message == "" {
		e.Message = strings.TrimSpace(http.StatusText(status) + " " + string(body))
	}
	if status == http.StatusNotFound && e.Message == "page not found" {
		return errors.New("the daemon does not know of this: it is no satld, or an older one")
	}
	message := "Error response from daemon: " + e.Message
	if status == http.StatusNotFound {
		return errdefs.ErrNotFound.WithMessage(message)
	}
	return errors.New(message)
}

// named is a path of satld's own API with a name in it.
func named(kind, name, rest string) string { return "/" + kind + "/" + url.PathEscape(name) + rest }

// slashed is a name in such a path that has a slash in it, as an image's has.
// No service, task, node or application has, and no path for one.
func slashed(path string) (name string, ok bool) {
	for part := range strings.SplitSeq(path, "/") {
		if name, err := url.PathUnescape(part); err == nil && strings.Contains(name, "/") {
			return name, true
		}
	}
	return "", false
}

// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Client talks to the shim of a state directory. Every call is a connection of
// its own. No call waits for a shim that Watch has found silent.
type Client struct {
	dir      Dir
	patience time.Duration
	presence presence
}

// NewClient makes a client; patience is how long the shim may take to say who
// it is, 0 is DefaultPatience.
func NewClient(dir Dir, patience time.Duration) *Client {
	c := &Client{dir: dir, patience: cmp.Or(patience, DefaultPatience)}
	c.presence.init()
	return c
}

// ErrNoShim says that no shim listens in the state directory: nothing of the
// request was done.
var ErrNoShim = errors.New("no shim listens")

// conn is one request's connection after the answer.
type conn struct {
	net.Conn
	r    *bufio.Reader
	stop func() bool
}

func (c *conn) Close() error {
	c.stop()
	return c.Conn.Close()
}

func (c *Client) call(ctx context.Context, req request, files ...*os.File) (*conn, response, error) {
	req.V = Version
	why, gone := c.Away()
	// These two wait for it to go on.
	patient := req.Op == opHello || req.Op == opEvents
	if why != nil && !patient {
		return nil, response{}, fmt.Errorf("ask the shim for %s: %w", req.Op, why)
	}
	nc, err := dial(ctx, string(c.dir))
	if errors.Is(err, syscall.EAGAIN) {
		return nil, response{}, fmt.Errorf("ask the shim for %s: %w: %w", req.Op, silent(0), err)
	}
	if err != nil {
		return nil, response{}, fmt.Errorf("%w: %w", ErrNoShim, err)
	}
	cn := &conn{Conn: nc, r: bufio.NewReader(nc)}
	cn.stop = context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	heed := func() bool { return false }
	if !patient {
		late := time.AfterFunc(doubtAfter, c.doubts)
		defer late.Stop()
		heed = giveUp(nc, gone)
	}
	resp, err := exchange(nc, cn.r, req, files)
	gaveUp := heed()
	if ctx.Err() != nil {
		nc.SetDeadline(time.Unix(1, 0)) // whatever heed set
	}
	if err != nil {
		cn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if why, _ := c.Away(); gaveUp && why != nil {
			err = why
		}
		return nil, response{}, fmt.Errorf("ask the shim for %s: %w", req.Op, err)
	}
	if resp.Error != "" {
		cn.Close()
		return nil, resp, &Error{Kind: resp.Kind, Text: resp.Error, Output: resp.Output}
	}
	return cn, resp, nil
}

// giveUp ends what waits on a connection when gone is closed, until it is told
// to stop that; then it tells whether it did.
func giveUp(nc net.Conn, gone <-chan struct{}) (stop func() bool) {
	over, done := make(chan struct{}), make(chan struct{})
	gave := false
	go func() {
		defer close(done)
		select {
		case <-gone:
			gave = true
			nc.SetDeadline(time.Unix(1, 0))
		case <-over:
		}
	}()
	return func() bool {
		close(over)
		<-done
		if gave {
			nc.SetDeadline(time.Time{}) // the answer may have come just then
		}
		return gave
	}
}

func exchange(nc net.Conn, r *bufio.Reader, req request, files []*os.File) (resp response, err error) {
	b, err := json.Marshal(req)
	if err != nil {
		return resp, err
	}
	b = append(b, '\n')
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		n, _, err := nc.(*net.UnixConn).WriteMsgUnix(b, unix.UnixRights(fds...), nil)
		if err != nil {
			return resp, err
		}
		b = b[n:]
	}
	// Writing nothing is a system call too, and fails where the shim has
	// answered and closed its end already: a quick command was done by then.
	if len(b) > 0 {
		if _, err := nc.Write(b); err != nil {
			return resp, err
		}
	}
	line, err := r.ReadBytes('\n')
	if err != nil {
		return resp, err
	}
	return resp, json.Unmarshal(line, &resp)
}

func (c *Client) do(ctx context.Context, req request) (response, error) {
	cn, resp, err := c.call(ctx, req)
	if err == nil {
		cn.Close()
	}
	return resp, err
}

// Hello asks the running shim for its pid and how many containers it holds. One
// that takes longer than it may is ErrSilent.
func (c *Client) Hello(ctx context.Context) (pid, containers int, err error) {
	soon, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	resp, err := c.do(soon, request{Op: opHello})
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		err = silent(c.peer())
	}
	return resp.Pid, resp.Containers, err
}

// peer is the pid of the shim as the system knows it, 0 where it does not.
func (c *Client) peer() int {
	nc, err := dial(context.Background(), string(c.dir))
	if err != nil {
		return 0
	}
	defer nc.Close()
	return peerPid(nc.(*net.UnixConn))
}

// Create makes a container and returns its first process's pid.
func (c *Client) Create(ctx context.Context, id string, req CreateRequest) (int, error) {
	resp, err := c.do(ctx, request{Op: opCreate, ID: id, Create: &req})
	return resp.Pid, err
}

// Start lets a container's first process run and returns when that was.
func (c *Client) Start(ctx context.Context, id string, req StartRequest) (time.Time, error) {
	resp, err := c.do(ctx, request{Op: opStart, ID: id, Start: &req})
	return resp.At, err
}

// Resize sets the size of a container's terminal.
func (c *Client) Resize(ctx context.Context, id string, width, height uint16) error {
	_, err := c.do(ctx, request{Op: opResize, ID: id, Width: width, Height: height})
	return err
}

// Settle waits until no create of the container is in progress.
func (c *Client) Settle(ctx context.Context, id string) error {
	_, err := c.do(ctx, request{Op: opSettle, ID: id})
	return err
}

// Forget lets go of a deleted container: when it returns, all output that the
// container's pipes still held is in the log.
func (c *Client) Forget(ctx context.Context, id string) error {
	_, err := c.do(ctx, request{Op: opForget, ID: id})
	return err
}

// Quit ends the shim if it holds no container; busy says that it does.
func (c *Client) Quit(ctx context.Context) (busy bool, err error) {
	resp, err := c.do(ctx, request{Op: opQuit})
	return resp.Busy, err
}

// Events calls look with the ID of each container that there is news of: its
// first process is gone, or its exit is written down. It does so until the shim
// ends or ctx is done; ready is called once, when it listens.
func (c *Client) Events(ctx context.Context, ready func(), look func(id string)) error {
	cn, _, err := c.call(ctx, request{Op: opEvents})
	if err != nil {
		return err
	}
	defer cn.Close()
	ready()
	for {
		line, err := cn.r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("listen to the shim: %w", err)
		}
		look(strings.TrimSuffix(line, "\n"))
	}
}

// Follow sends on the returned channel when the container has new output, and
// closes it when there will be no more, the shim is gone or ctx is done. held
// is false when the shim does not hold the container, or no more: then there
// is no channel.
func (c *Client) Follow(ctx context.Context, id string) (_ <-chan struct{}, held bool, err error) {
	cn, resp, err := c.call(ctx, request{Op: opFollow, ID: id})
	if err != nil {
		return nil, false, err
	}
	if !resp.Held {
		cn.Close()
		return nil, false, nil
	}
	nudges := make(chan struct{}, 1)
	go func() {
		defer close(nudges)
		defer cn.Close()
		buf := make([]byte, 64)
		for {
			if _, err := cn.r.Read(buf); err != nil {
				return
			}
			select {
			case nudges <- struct{}{}:
			default:
			}
		}
	}()
	return nudges, true, nil
}

// Stdin opens a way to the container's stdin; closing it ends what was sent.
func (c *Client) Stdin(ctx context.Context, id string) (io.WriteCloser, error) {
	cn, _, err := c.call(ctx, request{Op: opStdin, ID: id})
	if err != nil {
		return nil, err
	}
	return cn, nil
}

// SPDX-License-Identifier: BSD-2-Clause

// Package forward serves published TCP ports to the host itself, where the
// packet filter does not: pf(4) redirects what comes in from outside, and never
// what the host sends to 127.0.0.1, or to an address of its own. It listens there
// and passes each connection on to a member of the port's pool, in turn. It
// decides nothing about who is in a pool.
//
// The sets of ports and members are those of the last Apply, as the packet
// filter's are. A member that left gets no new connection; those that it has are
// left alone until its process is gone (Cut). A port without members is not
// listened on, so that connecting to it is refused.
//
// TCP only, IPv4 only; members see the bridge's address as the client's. The
// connections are the daemon's own: they end when it stops, unlike those that
// the packet filter redirects.
package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"satld/redirect"
)

// DefaultLimit is how many connections there may be at a time: each holds two
// sockets and two buffers of 16 KiB.
const DefaultLimit = 1024

// retryEvery is how long a port that was taken, or an address that is new, may
// wait for its listener; the packet filter is audited as often.
const retryEvery = 5 * time.Second

// loopback is where every port that is published on all addresses is served.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Config of a Forwarder.
type Config struct {
	// Addrs tells the host's own addresses, besides 127.0.0.1, on which it is
	// to be served; asked at the first Apply and then every 5 s. nil is none.
	Addrs  func(ctx context.Context) ([]netip.Addr, error)
	Limit  int          // 0 is DefaultLimit
	Logger *slog.Logger // nil is slog.Default
}

// Forwarder holds the listeners and their connections.
type Forwarder struct {
	cfg Config
	log *slog.Logger
	wg  sync.WaitGroup // of listeners and connections

	mu        sync.Mutex // guards what follows
	pools     map[redirect.Key]*pool
	addrs     []netip.Addr // nil until they were asked for
	listeners map[netip.AddrPort]*listener
	refused   map[netip.AddrPort]error // could not be listened on
	conns     map[*conn]bool
	full      time.Time // when it was last said that there are too many
	closed    bool
}

// New makes a Forwarder that listens nowhere.
func New(cfg Config) *Forwarder {
	cfg.Limit = cmp.Or(cfg.Limit, DefaultLimit)
	f := &Forwarder{
		cfg: cfg, log: cfg.Logger, pools: map[redirect.Key]*pool{}, listeners: map[netip.AddrPort]*listener{},
		refused: map[netip.AddrPort]error{}, conns: map[*conn]bool{},
	}
	if f.log == nil {
		f.log = slog.Default()
	}
	return f
}

// Apply makes the Forwarder serve exactly the TCP pools of rules. That a port is
// taken by somebody else is a warning, not a failure, and is tried again.
func (f *Forwarder) Apply(ctx context.Context, rules redirect.Rules) error {
	f.mu.Lock()
	first := f.addrs == nil
	f.mu.Unlock()
	if first {
		f.look(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := make(map[redirect.Key]bool)
	for _, p := range rules.Normalise().Pools {
		if p.Proto != "tcp" {
			continue
		}
		wanted[p.Key()] = true
		if f.pools[p.Key()] == nil {
			f.pools[p.Key()] = &pool{key: p.Key()}
		}
		f.pools[p.Key()].set(p.Members)
	}
	for k, p := range f.pools {
		if !wanted[k] {
			p.set(nil)
			delete(f.pools, k)
		}
	}
	f.listen()
	return nil
}

// look asks for the host's addresses.
func (f *Forwarder) look(ctx context.Context) {
	addrs := []netip.Addr{}
	if f.cfg.Addrs != nil {
		found, err := f.cfg.Addrs(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.log.Warn("the host's own addresses could not be told: published ports are not served to the host there", "err", err)
			return
		}
		addrs = append(addrs, found...)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addrs = addrs
}

// places are where the pools are to be listened on: what is published on one
// address is served there rather than what is published on every one.
func (f *Forwarder) places() map[netip.AddrPort]*pool {
	out := make(map[netip.AddrPort]*pool)
	own := append([]netip.Addr{loopback}, f.addrs...)
	for _, any := range []bool{true, false} {
		for _, p := range f.pools {
			if p.key.Any() != any {
				continue
			}
			at := own
			if !any {
				at = []netip.Addr{p.key.HostIP}
				if !p.key.HostIP.IsLoopback() && !slices.Contains(f.addrs, p.key.HostIP) {
					continue // another's, or pf's
				}
			}
			for _, a := range at {
				if a.Is4() {
					out[netip.AddrPortFrom(a, p.key.Published)] = p
				}
			}
		}
	}
	// Only now: an empty pool of one address is not that of every address.
	maps.DeleteFunc(out, func(_ netip.AddrPort, p *pool) bool { return len(p.members) == 0 })
	return out
}

// listen brings the listeners to what the pools want; the caller holds the lock.
func (f *Forwarder) listen() {
	if f.closed {
		return
	}
	places := f.places()
	for at, l := range f.listeners {
		if places[at] != l.pool {
			l.Close()
			delete(f.listeners, at)
		}
	}
	maps.DeleteFunc(f.refused, func(at netip.AddrPort, _ error) bool { return places[at] == nil })
	for at, p := range places {
		if f.listeners[at] != nil {
			continue
		}
		l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
		if err != nil {
			if f.refused[at] == nil || f.refused[at].Error() != err.Error() {
				f.log.Warn(refusal(at, err))
			}
			f.refused[at] = err
			continue
		}
		if f.refused[at] != nil {
			f.log.Info("a published port is served to the host again", "addr", at.String())
			delete(f.refused, at)
		}
		made := &listener{TCPListener: l, pool: p}
		f.listeners[at] = made
		f.wg.Go(func() { f.accept(made) })
	}
}

// refusal words why a port is not served.
func refusal(at netip.AddrPort, err error) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Sprintf("%s is taken by another program, or by a container on the host's network: a connection of this host to it does not reach the service that publishes port %d; it is tried again", at, at.Port())
	}
	return fmt.Sprintf("published port %d is not served to this host on %s: %v; it is tried again", at.Port(), at.Addr(), err)
}

// Warnings are the ports that are not served, and why.
func (f *Forwarder) Warnings() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, err := range f.refused {
		out = append(out, refusal(at, err))
	}
	slices.Sort(out)
	return out
}

// Cut ends the connections to members whose processes are gone, which are those
// that the flows name with All. Others stay: they are TCP and established.
func (f *Forwarder) Cut(_ context.Context, flows []redirect.Flow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		ended := func(flow redirect.Flow) bool {
			return flow.All && c.key == redirect.MakeKey(flow.Proto, flow.HostIP, flow.Published) && c.member == flow.Backend
		}
		if slices.ContainsFunc(flows, ended) {
			c.reset()
		}
	}
	return nil
}

// Run tries ports that were taken again and follows the host's addresses, until
// ctx is done. Then it ends every listener and connection and returns nil.
func (f *Forwarder) Run(ctx context.Context) error {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.retry(ctx)
			continue
		case <-ctx.Done():
		}
		break
	}
	f.mu.Lock()
	f.closed = true
	for _, l := range f.listeners {
		l.Close()
	}
	for _, p := range f.pools {
		p.set(nil)
	}
	for c := range f.conns {
		c.reset()
	}
	f.mu.Unlock()
	f.wg.Wait()
	return nil
}

// retry is one pass of Run.
func (f *Forwarder) retry(ctx context.Context) {
	f.look(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listen()
}

// SPDX-License-Identifier: BSD-2-Clause

package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"satld/redirect"
)

// patience is how long anything may take that takes no time.
const patience = 20 * time.Second

// own stands for an address of the host beside 127.0.0.1.
var own = netip.MustParseAddr("127.0.0.77")

// server answers each connection with its name and then with what it is sent,
// until the client's end; it remembers the connections it has.
type server struct {
	net.Listener
	at   netip.AddrPort
	mu   sync.Mutex
	seen int
	end  []net.Conn
}

func serve(t testing.TB, last byte) *server {
	t.Helper()
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.%d:0", last))
	must(t, err)
	s := &server{Listener: l, at: l.Addr().(*net.TCPAddr).AddrPort()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.seen++
			s.end = append(s.end, c)
			s.mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				if _, err := fmt.Fprintf(c, "%d\n", last); err == nil {
					_, _ = io.Copy(c, c) // ends with the client, in whatever way
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.end {
			c.Close()
		}
		s.mu.Unlock()
		wg.Wait()
	})
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// free is a port that nobody has on any of the addresses used here.
func free(t testing.TB) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// start runs a Forwarder until the test's end, and looks that it leaves nothing.
func start(t testing.TB, change ...func(*Config)) *Forwarder {
	t.Helper()
	cfg := Config{
		Addrs:  func(context.Context) ([]netip.Addr, error) { return []netip.Addr{own}, nil },
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	f := New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			must(t, err)
		case <-time.After(patience):
			t.Fatal("does not stop")
		}
		if len(f.conns) > 0 {
			t.Errorf("%d connections left", len(f.conns))
		}
	})
	return f
}

func pools(p ...redirect.Pool) redirect.Rules { return redirect.Rules{Pools: p} }

func at(port uint16, members ...*server) redirect.Pool {
	p := redirect.Pool{Proto: "tcp", Published: port}
	for _, m := range members {
		p.Members = append(p.Members, m.at)
	}
	return p
}

func dial(t testing.TB, addr netip.Addr, port uint16) (*net.TCPConn, error) {
	t.Helper()
	c, err := net.DialTimeout("tcp4", netip.AddrPortFrom(addr, port).String(), patience)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(patience)))
	return c.(*net.TCPConn), nil
}

// ask connects and tells who answered.
func ask(t testing.TB, addr netip.Addr, port uint16) (string, error) {
	t.Helper()
	c, err := dial(t, addr, port)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return hear(c)
}

func hear(c io.Reader) (string, error) {
	var name []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(c, b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(name), nil
		}
		name = append(name, b[0])
	}
}

func TestInTurn(t *testing.T) {
	f, port := start(t), free(t)
	a, b := serve(t, 2), serve(t, 3)
	must(t, f.Apply(t.Context(), pools(at(port, a, b))))
	for _, addr := range []netip.Addr{loopback, own} {
		got := map[string]int{}
		for range 10 {
			name, err := ask(t, addr, port)
			must(t, err)
			got[name]++
		}
		if got["2"] != 5 || got["3"] != 5 {
			t.Errorf("%s: %v", addr, got)
		}
	}
	must(t, f.Apply(t.Context(), pools(at(port, b))))
	for range 10 {
		if name, err := ask(t, loopback, port); name != "3" {
			t.Errorf("%q, %v", name, err)
		}
	}
}

// A port without members refuses; one that is not published any more too.
func TestNobodyRefuses(t *testing.T) {
	f, port := start(t), free(t)
	a := serve(t, 2)
	for range 3 {
		must(t, f.Apply(t.Context(), pools(at(port))))
		if _, err := ask(t, loopback, port); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("empty: %v", err)
		}
		must(t, f.Apply(t.Context(), pools(at(port, a))))
		if name, err := ask(t, loopback, port); name != "2" {
			t.Errorf("%q, %v", name, err)
		}
		must(t, f.Apply(t.Context(), pools()))
		if _, err := ask(t, loopback, port); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("not published: %v", err)
		}
	}
}

// cases/pool.md, pool-2: a connection outlives the withdrawal of its member and
// ends when the member's process is gone; meanwhile the member gets no new one.
func TestWithdrawnMemberKeepsItsConnections(t *testing.T) {
	f, port := start(t), free(t)
	a, b := serve(t, 2), serve(t, 3)
	must(t, f.Apply(t.Context(), pools(at(port, a))))
	c, err := dial(t, loopback, port)
	must(t, err)
	if name, err := hear(c); name != "2" {
		t.Fatal(name, err)
	}
	must(t, f.Apply(t.Context(), pools(at(port, b))))
	for range 20 {
		if name, err := ask(t, loopback, port); name != "3" {
			t.Errorf("%q, %v", name, err)
		}
	}
	key := redirect.Flow{Proto: "tcp", Published: port}
	ended := redirect.Flow{Proto: "tcp", Published: port, Backend: a.at, All: true}
	other, draining, elsewhere := ended, ended, ended
	other.Backend, draining.All, elsewhere.Published = b.at, false, port+1
	must(t, f.Cut(t.Context(), []redirect.Flow{key, other, draining, elsewhere}))
	must(t, f.Apply(t.Context(), pools()))
	if _, err := c.Write([]byte("still here\n")); err != nil {
		t.Fatal(err)
	}
	if text, err := hear(c); text != "still here" {
		t.Fatal(text, err)
	}
	must(t, f.Cut(t.Context(), []redirect.Flow{ended}))
	if _, err := hear(c); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the end of the process: %v", err)
	}
}

// Each direction ends by itself.
func TestHalfClose(t *testing.T) {
	f, port := start(t), free(t)
	l, err := net.Listen("tcp4", "127.0.0.2:0")
	must(t, err)
	defer l.Close()
	const answer = 1 << 20
	asked := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		question, _ := io.ReadAll(c) // the end of the question is the cue
		asked <- string(question)
		_, _ = c.Write(bytes.Repeat([]byte("x"), answer))
	}()
	must(t, f.Apply(t.Context(), pools(redirect.Pool{Proto: "tcp", Published: port, Members: []netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()}})))
	c, err := dial(t, loopback, port)
	must(t, err)
	_, err = c.Write([]byte("question"))
	must(t, errors.Join(err, c.CloseWrite()))
	got, err := io.ReadAll(c)
	if len(got) != answer || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if q := <-asked; q != "question" {
		t.Errorf("asked %q", q)
	}
}

func TestMemberThatDoesNotAnswerIsPassedOver(t *testing.T) {
	f, port := start(t), free(t)
	a := serve(t, 2)
	dead := redirect.Pool{Proto: "tcp", Published: port, Members: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.9:1"), a.at, netip.MustParseAddrPort("127.0.0.8:1")}}
	must(t, f.Apply(t.Context(), pools(dead)))
	for range 6 {
		if name, err := ask(t, loopback, port); name != "2" {
			t.Errorf("%q, %v", name, err)
		}
	}
	dead.Members = slices.DeleteFunc(dead.Members, func(m netip.AddrPort) bool { return m == a.at })
	must(t, f.Apply(t.Context(), pools(dead)))
	if name, err := ask(t, loopback, port); err == nil {
		t.Errorf("answered by %q", name)
	}
}

// What is published on one address is served there alone, before what is
// published on every address, and also while nobody is in its pool.
func TestHostIP(t *testing.T) {
	f, port := start(t), free(t)
	a, b := serve(t, 2), serve(t, 3)
	here, foreign := at(port, b), at(port, b)
	here.HostIP, foreign.HostIP = own, netip.MustParseAddr("127.0.0.78")
	foreign.HostIP = netip.MustParseAddr("192.0.2.1")
	expect := func(addr netip.Addr, want string) {
		t.Helper()
		if name, err := ask(t, addr, port); name != want || want == "" && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %q, %v, want %q", addr, name, err, want)
		}
	}
	must(t, f.Apply(t.Context(), pools(at(port, a), here, foreign)))
	expect(loopback, "2")
	expect(own, "3")
	here.Members = nil
	must(t, f.Apply(t.Context(), pools(at(port, a), here)))
	expect(loopback, "2")
	expect(own, "")
	must(t, f.Apply(t.Context(), pools(foreign)))
	expect(loopback, "")
	expect(own, "")
	local := at(port, b)
	local.HostIP = loopback
	must(t, f.Apply(t.Context(), pools(local)))
	expect(loopback, "3")
	expect(own, "")
	udp := at(port, a)
	udp.Proto = "udp"
	must(t, f.Apply(t.Context(), pools(udp)))
	expect(loopback, "")
	if w := f.Warnings(); len(w) > 0 {
		t.Errorf("%v", w)
	}
}

// A port that somebody else has is a warning, and is served when it is free.
func TestTakenPort(t *testing.T) {
	var out bytes.Buffer
	f, port := start(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) }), free(t)
	a := serve(t, 2)
	taken, err := net.Listen("tcp4", netip.AddrPortFrom(loopback, port).String())
	must(t, err)
	for range 3 {
		must(t, f.Apply(t.Context(), pools(at(port, a))))
	}
	if n := strings.Count(out.String(), "level=WARN"); n != 1 {
		t.Errorf("warned %d times: %s", n, out.String())
	}
	if w := f.Warnings(); len(w) != 1 || !strings.Contains(w[0], fmt.Sprintf("127.0.0.1:%d is taken by another program", port)) {
		t.Errorf("%v", w)
	}
	if name, err := ask(t, own, port); name != "2" {
		t.Errorf("its other address: %q, %v", name, err)
	}
	taken.Close()
	f.retry(t.Context())
	if name, err := ask(t, loopback, port); name != "2" {
		t.Errorf("%q, %v", name, err)
	}
	if w := f.Warnings(); len(w) > 0 {
		t.Errorf("%v", w)
	}
}

func TestAddressesAreFollowed(t *testing.T) {
	var mu sync.Mutex
	addrs, failure := []netip.Addr(nil), errors.New("no addresses today")
	f, port := start(t, func(c *Config) {
		c.Addrs = func(context.Context) ([]netip.Addr, error) {
			mu.Lock()
			defer mu.Unlock()
			return addrs, failure
		}
	}), free(t)
	a := serve(t, 2)
	must(t, f.Apply(t.Context(), pools(at(port, a))))
	if name, err := ask(t, loopback, port); name != "2" {
		t.Errorf("%q, %v", name, err)
	}
	mu.Lock()
	addrs, failure = []netip.Addr{own, netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")}, nil
	mu.Unlock()
	f.retry(t.Context())
	if name, err := ask(t, own, port); name != "2" {
		t.Errorf("%q, %v", name, err)
	}
	if w := f.Warnings(); len(w) != 1 || !strings.Contains(w[0], "192.0.2.1") { // not this host's
		t.Errorf("%v", w)
	}
	mu.Lock()
	addrs = nil
	mu.Unlock()
	f.retry(t.Context())
	if _, err := ask(t, own, port); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}

func TestLimit(t *testing.T) {
	var out bytes.Buffer
	f, port := start(t, func(c *Config) { c.Limit, c.Logger = 2, slog.New(slog.NewTextHandler(&out, nil)) }), free(t)
	a := serve(t, 2)
	must(t, f.Apply(t.Context(), pools(at(port, a))))
	var held []*net.TCPConn
	for range 2 {
		c, err := dial(t, loopback, port)
		must(t, err)
		if name, err := hear(c); name != "2" {
			t.Fatal(name, err)
		}
		held = append(held, c)
	}
	for range 3 {
		if name, err := ask(t, loopback, port); err == nil {
			t.Errorf("one too many: %q", name)
		}
	}
	if n := strings.Count(out.String(), "too many connections"); n != 1 {
		t.Errorf("said %d times", n)
	}
	held[0].Close()
	for begun := time.Now(); ; {
		if name, err := ask(t, loopback, port); name == "2" {
			break
		} else if time.Since(begun) > patience {
			t.Fatalf("after one ended: %v", err)
		}
	}
}

// The end of the daemon ends what it holds, also under way, and nothing more is served.
func TestStop(t *testing.T) {
	f := New(Config{Logger: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	port, a := free(t), serve(t, 2)
	must(t, f.Apply(t.Context(), pools(at(port, a))))
	c, err := dial(t, loopback, port)
	must(t, err)
	if name, err := hear(c); name != "2" {
		t.Fatal(name, err)
	}
	stop()
	must(t, <-done)
	if _, err := hear(c); err == nil {
		t.Error("connection goes on")
	}
	must(t, f.Apply(t.Context(), pools(at(port, a))))
	if _, err := ask(t, loopback, port); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}

// cases/pool.md, pool-9: whatever the pools were before, a connection made
// after an Apply goes to one of its members, or is refused when there is none.
func TestConnectionsFollowApply(t *testing.T) {
	f, port := start(t), free(t)
	servers := []*server{serve(t, 2), serve(t, 3), serve(t, 4)}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 5).Draw(rt, "steps") {
			in := rapid.SliceOfNDistinct(rapid.IntRange(0, 2), 0, 3, rapid.ID[int]).Draw(rt, "members")
			published := rapid.Bool().Draw(rt, "published")
			var members []*server
			var names []string
			for _, i := range in {
				members, names = append(members, servers[i]), append(names, fmt.Sprint(i+2))
			}
			rules := pools()
			if published {
				rules = pools(at(port, members...))
			}
			must(t, f.Apply(t.Context(), rules))
			c, err := net.DialTimeout("tcp4", netip.AddrPortFrom(loopback, port).String(), patience)
			if !published || len(in) == 0 {
				if !errors.Is(err, syscall.ECONNREFUSED) {
					rt.Fatalf("nobody there: %v", err)
				}
				continue
			}
			if err != nil {
				rt.Fatal(err)
			}
			name, err := hear(c)
			c.Close()
			if !slices.Contains(names, name) {
				rt.Fatalf("%q of %v, %v", name, names, err)
			}
		}
	})
}

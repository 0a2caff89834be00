// SPDX-License-Identifier: BSD-2-Clause

package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// MaxTTL is the longest that an answer of ours may be kept
	// (cases/gate-dns.md, gate-dns-4).
	MaxTTL = 5 * time.Second
	// negativeTTL is short: a service that has nobody now may in a second.
	negativeTTL = 1
	// relistenEvery is how often an address that could not be listened on is
	// tried again.
	relistenEvery = time.Second
	// idleTCP is how long a TCP connection may be silent.
	idleTCP = 10 * time.Second
)

// Config of a Server.
type Config struct {
	// TTL of our answers, whole seconds; 0 is MaxTTL, and more is cut to it.
	TTL time.Duration
	// ResolvConf names the host's resolvers; "" is /etc/resolv.conf.
	ResolvConf string
	// Upstreams, when set, are used instead of those in ResolvConf.
	Upstreams  []netip.AddrPort
	Logger     *slog.Logger          // nil is slog.Default
	Registerer prometheus.Registerer // nil registers nothing
}

// Listen is one place to answer at, and to whom.
type Listen struct {
	Addr netip.AddrPort
	// Subnet holds those who are answered; others are refused, so that no
	// neighbour of the host uses it as a resolver. Zero is everybody.
	Subnet netip.Prefix
}

// Server answers on the addresses given with Set, UDP and TCP.
type Server struct {
	names    Names
	ttl      uint32
	log      *slog.Logger
	upstream *upstreams
	inFlight chan struct{} // a slot for each question that is being forwarded
	queries  *prometheus.CounterVec
	failed   chan struct{} // holds one: a listener needs to be made again

	mu      sync.Mutex
	wanted  []Listen
	open    map[Listen]*listener
	stopped bool
}

// maxInFlight bounds the questions that wait for resolvers at a time; more are
// answered SERVFAIL at once, and names of ours are never held up by them.
const maxInFlight = 512

// New makes a Server that listens nowhere yet.
func New(names Names, cfg Config) *Server {
	ttl := min(cmp.Or(cfg.TTL, MaxTTL), MaxTTL)
	s := &Server{
		names: names, ttl: uint32(ttl / time.Second), log: cfg.Logger,
		inFlight: make(chan struct{}, maxInFlight), failed: make(chan struct{}, 1),
		open: make(map[Listen]*listener),
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "satl_dns_queries_total", Help: "Questions answered, by how: local, forwarded, refused, failed.",
		}, []string{"how"}),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(s.queries)
	}
	s.upstream = &upstreams{path: cmp.Or(cfg.ResolvConf, "/etc/resolv.conf"), fixed: cfg.Upstreams, own: s.listensOn}
	return s
}

// Set makes the Server listen on exactly these addresses, each once. It
// returns what could not be listened on; Run tries that again every second.
func (s *Server) Set(places []Listen) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = slices.Clone(places)
	return s.reconcile()
}

// reconcile opens and closes listeners; the caller holds the lock.
func (s *Server) reconcile() error {
	for place, l := range s.open {
		if s.stopped || l.dead() || !slices.Contains(s.wanted, place) {
			l.close()
			delete(s.open, place)
		}
	}
	if s.stopped {
		return nil
	}
	var errs []error
	for _, place := range s.wanted {
		if s.open[place] != nil {
			continue
		}
		l, err := s.listen(place)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.open[place] = l
	}
	if len(errs) > 0 {
		s.retry()
	}
	return errors.Join(errs...)
}

func (s *Server) retry() {
	select {
	case s.failed <- struct{}{}:
	default:
	}
}

// Run keeps the listeners alive until ctx is done, and closes them then.
func (s *Server) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stopped = true
			return s.reconcile()
		case <-s.failed:
			timer.Reset(relistenEvery)
		case <-timer.C:
			s.mu.Lock()
			err := s.reconcile()
			s.mu.Unlock()
			if err != nil {
				s.log.Warn("dns cannot listen; trying again", "error", err)
			}
		}
	}
}

// listensOn tells whether the address is one of ours.
func (s *Server) listensOn(a netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.wanted, func(l Listen) bool { return l.Addr == a })
}

// listener is the two sockets of one place.
type listener struct {
	servers []*dns.Server
	done    chan struct{} // closed when one of them ended
	once    sync.Once
}

func (s *Server) listen(place Listen) (*listener, error) {
	// freeBind: the bridge may have no link, or be made a moment later.
	lc := net.ListenConfig{Control: freeBind}
	ctx, addr := context.Background(), place.Addr.String()
	pc, err := lc.ListenPacket(ctx, "udp", addr)
	if err != nil {
		return nil, fmt.Errorf("dns: listen on %s/udp: %w", addr, err)
	}
	tcp, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dns: listen on %s/tcp: %w", addr, err), pc.Close())
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) { s.serve(w, r, place) })
	l := &listener{done: make(chan struct{}), servers: []*dns.Server{
		{PacketConn: pc, Handler: handler, UDPSize: dns.DefaultMsgSize},
		{Listener: tcp, Handler: handler, ReadTimeout: idleTCP, WriteTimeout: idleTCP, IdleTimeout: func() time.Duration { return idleTCP }},
	}}
	var started sync.WaitGroup
	for _, srv := range l.servers {
		started.Add(1)
		up := sync.OnceFunc(started.Done)
		srv.NotifyStartedFunc = up
		go func() {
			err := srv.ActivateAndServe()
			up()
			l.once.Do(func() { close(l.done) })
			if err != nil {
				s.log.Error("dns listener ended; making it anew", "address", addr, "error", err)
				s.retry()
			}
		}()
	}
	started.Wait()
	return l, nil
}

func (l *listener) dead() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// close lets go of the address; answers that are under way are dropped.
func (l *listener) close() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, srv := range l.servers {
		_ = srv.ShutdownContext(now)
	}
}

// SPDX-License-Identifier: BSD-2-Clause

// Package api is the Docker Engine REST API on the unix socket: it decodes a
// request, admits it (defaults, warnings, refusals), hands it to the store or
// to this node's containers, and renders the answer. It decides nothing about
// health, traffic or placement, and keeps no state of its own.
//
// One file holds one resource; every error goes through the one table in
// errors.go; every route is registered by a xxxRoutes function.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gorilla/mux"

	"satld/api/wire"
	"satld/cluster"
	"satld/events"
	"satld/executor"
	"satld/image"
	"satld/mesh"
	"satld/network"
)

const (
	// defaultReadyTimeout bounds how long a request waits for the store to be
	// loaded before it is answered 503: short enough for a client's own
	// timeout, long enough for an election after a restart.
	defaultReadyTimeout = 10 * time.Second
	// defaultLeaderTimeout bounds how long a change waits for a leader: a new
	// one is there in less where there can be one.
	defaultLeaderTimeout = 5 * time.Second
)

// Config is what a Server is made of. Fields without a comment are required.
type Config struct {
	Cluster    cluster.Cluster
	Containers executor.Containers
	Images     image.Images
	Networks   network.Networks
	Events     *events.Log

	// Warnings are what this system accepts and does not do, in words; optional.
	Warnings func() []string
	// TrafficStatus tells why published ports or names may not be as they
	// should ("" when all is well); shown in `docker info`. It may be nil.
	TrafficStatus func() string

	// Apps are the verdicts on applications; nil where there are none.
	Apps Apps

	// PeerHealth asks another node for its LocalHealth of a service. It may be
	// nil: of other nodes' tasks is then shown what the store knows.
	PeerHealth func(ctx context.Context, nodeID, serviceID string) ([]wire.TaskHealth, error)
	// Observed is what this node makes of a task of another node, "" of any
	// other. It may be nil.
	Observed func(taskID string) mesh.Verdict

	Version   string // satld's own version, "0.1.0"; "" is "dev"
	Commit    string // git commit, may be empty
	BuildTime string // RFC 3339, may be empty

	Root     string // the state directory, absolute
	NodeName string // host name; "" is the system's
	// NetworkName is the name of the node's own default network ("satl0"),
	// which also answers to Docker's "bridge".
	NetworkName string
	Runtime     string // the OCI runtime, by name or path: "runc", "ocijail"
	Redirect    string // name of the redirector: "nft", "pf", "off"
	Debug       bool   // shown in info

	Logger *slog.Logger // nil is the default logger
	// ReadyTimeout is how long a request waits for the store; 0 is 10 s.
	ReadyTimeout time.Duration
	// LeaderTimeout is how long a change waits for a leader; 0 is 5 s.
	LeaderTimeout time.Duration
}

// Server answers the Docker Engine API. It is made by New and is safe for
// concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	begun   time.Time
	handler http.Handler
	execs   execRegistry // the execs of this daemon's life

	host hostFacts

	// networkMu keeps the sweep of bridges from a network that is being made.
	networkMu sync.Mutex
	// portBusy tells whether a process of this host holds a port.
	portBusy func(proto string, port uint32) bool
}

// New makes a server; it starts nothing.
func New(cfg Config) *Server {
	if cfg.Version == "" {
		cfg.Version = "dev"
	}
	if cfg.NetworkName == "" {
		cfg.NetworkName = "satl0"
	}
	if cfg.ReadyTimeout <= 0 {
		cfg.ReadyTimeout = defaultReadyTimeout
	}
	if cfg.LeaderTimeout <= 0 {
		cfg.LeaderTimeout = defaultLeaderTimeout
	}
	if cfg.Events == nil {
		cfg.Events = new(events.Log)
	}
	s := &Server{cfg: cfg, log: cfg.Logger, begun: time.Now(), portBusy: hostPortBusy, host: readHost()}
	if s.log == nil {
		s.log = slog.Default()
	}
	m := mux.NewRouter()
	r := &routes{server: s, mux: m}
	s.systemRoutes(r)
	s.eventRoutes(r)
	s.swarmRoutes(r)
	s.serviceRoutes(r)
	s.taskRoutes(r)
	s.nodeRoutes(r)
	s.secrets().routes(s, r)
	s.configs().routes(s, r)
	s.volumeRoutes(r)
	s.networkRoutes(r)
	s.containerRoutes(r)
	s.execRoutes(r)
	s.imageRoutes(r)
	s.distributionRoutes(r)
	s.dfRoutes(r)
	s.unsupportedRoutes(r)
	s.ownRoutes(r)
	notFound := http.HandlerFunc(s.pageNotFound)
	m.HandleFunc(versionPrefix+"/{path:.*}", s.pageNotFound)
	m.NotFoundHandler, m.MethodNotAllowedHandler = notFound, notFound
	s.handler = m
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.handler.ServeHTTP(w, r)
}

// nodeName is this host's name.
func (s *Server) nodeName() string {
	if s.cfg.NodeName != "" {
		return s.cfg.NodeName
	}
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

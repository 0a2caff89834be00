// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-connections/nat"
	"github.com/moby/swarmkit/v2/api"

	"satld/traffic"
)

// PortBinding is a published port of one container.
type PortBinding struct {
	Proto     string
	HostIP    string // empty: every address of the host
	Published uint16
	Target    uint16
}

func (p PortBinding) traffic() traffic.Port {
	ip, err := netip.ParseAddr(p.HostIP) // checked when the binding was made
	if err != nil {
		ip = netip.IPv4Unspecified()
	}
	return traffic.Port{Proto: p.Proto, HostIP: ip, Published: p.Published, Target: p.Target}
}

func (p PortBinding) String() string {
	return fmt.Sprintf("%s:%d->%d/%s", p.HostIP, p.Published, p.Target, p.Proto)
}

// PortHeld is an error when a process of this host holds the port, found by
// listening on it for a moment; host "" is every address, IPv6 included. What
// cannot be told (no right, sctp) is no error.
func PortHeld(proto, host string, port uint32) error {
	network := proto
	if host != "" {
		network += "4"
	}
	addr := net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
	var l io.Closer
	var err error
	switch proto {
	case "tcp":
		l, err = net.Listen(network, addr)
	case "udp":
		l, err = net.ListenPacket(network, addr)
	default:
		return nil
	}
	if err == nil {
		return l.Close()
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	return nil
}

// taskPorts are the ports a task publishes, from its endpoint as allocated.
func taskPorts(t *api.Task) []PortBinding {
	if t.Endpoint == nil {
		return nil
	}
	var out []PortBinding
	for _, p := range t.Endpoint.Ports {
		if p.PublishedPort == 0 {
			continue
		}
		out = append(out, portBinding(p))
	}
	return out
}

func portBinding(p *api.PortConfig) PortBinding {
	return PortBinding{Proto: strings.ToLower(p.Protocol.String()), Published: uint16(p.PublishedPort), Target: uint16(p.TargetPort)}
}

// firstTarget is the first target port that the service names, 0 without: the
// port of a probe that names none.
func firstTarget(t *api.Task) uint16 {
	if t.Endpoint == nil {
		return 0
	}
	ports := t.Endpoint.Ports
	if t.Endpoint.Spec != nil && len(t.Endpoint.Spec.Ports) > 0 {
		ports = t.Endpoint.Spec.Ports // in the order they were given
	}
	if len(ports) == 0 {
		return 0
	}
	return uint16(ports[0].TargetPort)
}

// Ports that `run -P` and `run -p 80` pick from: above what a service gets
// by itself (30000-32767), below the usual ephemeral range of Linux.
const (
	firstPickedPort = 32768
	lastPickedPort  = 60999
)

// hostPorts resolves the port bindings of `run`, picking free ports where
// none is named. taken are the bindings of every other container.
func hostPorts(cfg *container.Config, host *container.HostConfig, taken []PortBinding) ([]PortBinding, error) {
	wanted := nat.PortMap{}
	for port, bindings := range host.PortBindings {
		wanted[port] = bindings
	}
	if host.PublishAllPorts {
		for port := range cfg.ExposedPorts {
			if _, ok := wanted[port]; !ok {
				wanted[port] = []nat.PortBinding{{}}
			}
		}
	}
	ports := make([]nat.Port, 0, len(wanted))
	for port := range wanted {
		ports = append(ports, port)
	}
	slices.SortFunc(ports, func(a, b nat.Port) int { return a.Int() - b.Int() })
	var out []PortBinding
	for _, port := range ports {
		for _, b := range wanted[port] {
			binding := PortBinding{Proto: port.Proto(), HostIP: b.HostIP, Target: uint16(port.Int())}
			if b.HostIP != "" {
				ip, err := netip.ParseAddr(b.HostIP)
				if err != nil || !ip.Is4() {
					return nil, invalid("invalid host address %q of published port %s: only IPv4 addresses are supported", b.HostIP, port)
				}
				if ip.IsUnspecified() {
					binding.HostIP = ""
				}
			}
			if b.HostPort != "" {
				n, err := strconv.ParseUint(b.HostPort, 10, 16)
				if err != nil {
					return nil, invalid("invalid published port %q: ranges are not supported", b.HostPort)
				}
				binding.Published = uint16(n)
			}
			if binding.Published == 0 {
				free, err := pickPort(binding, append(taken, out...))
				if err != nil {
					return nil, err
				}
				binding.Published = free
			} else if other, clash := clashing(binding, append(taken, out...)); clash {
				return nil, conflict("Bind for %s:%d failed: port is already allocated (%s)", hostOf(binding), binding.Published, other)
			}
			out = append(out, binding)
		}
	}
	return out, nil
}

func hostOf(p PortBinding) string {
	if p.HostIP == "" {
		return "0.0.0.0"
	}
	return p.HostIP
}

// clashing finds a binding that claims the same traffic.
func clashing(p PortBinding, taken []PortBinding) (PortBinding, bool) {
	for _, o := range taken {
		if o.Proto == p.Proto && o.Published == p.Published && (o.HostIP == "" || p.HostIP == "" || o.HostIP == p.HostIP) {
			return o, true
		}
	}
	return PortBinding{}, false
}

func pickPort(p PortBinding, taken []PortBinding) (uint16, error) {
	for port := firstPickedPort; port <= lastPickedPort; port++ {
		p.Published = uint16(port)
		if _, clash := clashing(p, taken); !clash {
			return p.Published, nil
		}
	}
	return 0, fmt.Errorf("no free port to publish %d/%s on: %w", p.Target, p.Proto, cerrdefs.ErrResourceExhausted)
}

// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	units "github.com/docker/go-units"

	"satld/jail"
)

// writeFiles writes the container's resolv.conf, hosts and hostname and
// returns the mounts that show them to it.
func (n *Node) writeFiles(r Record) ([]jail.Mount, error) {
	resolv, err := n.resolvConf(r)
	if err != nil {
		return nil, err
	}
	hosts, err := n.hosts(r)
	if err != nil {
		return nil, err
	}
	files := []struct{ name, text string }{
		{"resolv.conf", resolv},
		{"hosts", hosts},
		{"hostname", r.hostname() + "\n"},
	}
	var mounts []jail.Mount
	for _, f := range files {
		path := filepath.Join(n.dir, r.ID, f.name)
		if err := os.WriteFile(path, []byte(f.text), 0o644); err != nil {
			return nil, fmt.Errorf("write %s of container %s: %w", f.name, r.Name, err)
		}
		mounts = append(mounts, jail.Mount{Type: "bind", Source: path, Target: "/etc/" + f.name, Options: []string{"rprivate"}})
	}
	return mounts, nil
}

// resolvConf points the container at this node's DNS, which forwards what it
// does not know. Servers named in the spec replace it, as they are what was
// asked for; the host's own network stack keeps the host's resolver.
func (n *Node) resolvConf(r Record) (string, error) {
	if r.Host && len(r.HostConfig.DNS) == 0 {
		data, err := os.ReadFile("/etc/resolv.conf")
		if err != nil && !os.IsNotExist(err) {
			return "", fmt.Errorf("read the host's resolver configuration: %w", err)
		}
		return string(data), nil
	}
	servers := r.HostConfig.DNS
	if len(servers) == 0 {
		for _, a := range n.cfg.Networks.Attachments(r.runtimeID()) {
			servers = append(servers, a.Gateway.String())
			break // one server: every network's answers for all of the asker's networks
		}
	}
	var b strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(r.HostConfig.DNSSearch) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(r.HostConfig.DNSSearch, " "))
	}
	options := r.HostConfig.DNSOptions
	if len(options) == 0 {
		options = []string{"ndots:0"}
	}
	fmt.Fprintf(&b, "options %s\n", strings.Join(options, " "))
	return b.String(), nil
}

// nameHost gives a container in the host's network the host's name, as in
// Docker, where it is given none.
func (n *Node) nameHost(r *Record) {
	if r.Host && r.Config.Hostname == "" {
		r.Config.Hostname = n.cfg.Hostname
	}
}

// hosts is the container's /etc/hosts. In the host's network that is the
// host's, with what was asked for beside it.
func (n *Node) hosts(r Record) (string, error) {
	var b strings.Builder
	if r.Host {
		data, err := os.ReadFile("/etc/hosts")
		if err != nil && !os.IsNotExist(err) {
			return "", fmt.Errorf("read the host's own names: %w", err)
		}
		b.Write(data)
		if len(data) > 0 && data[len(data)-1] != '\n' {
			b.WriteByte('\n')
		}
	}
	if b.Len() == 0 {
		if !n.cfg.JailFirst || r.Host {
			// A jail of its own has no 127.0.0.1 (spec/healthchecks.txt, "Probe the
			// task's own address").
			b.WriteString("127.0.0.1\tlocalhost\n")
		}
		b.WriteString("::1\tlocalhost ip6-localhost ip6-loopback\n")
	}
	for _, h := range r.HostConfig.ExtraHosts {
		name, ip, ok := strings.Cut(h, ":")
		if !ok {
			continue
		}
		if ip == "host-gateway" {
			for _, a := range n.cfg.Networks.Attachments(r.runtimeID()) {
				ip = a.Gateway.String()
				break
			}
		}
		fmt.Fprintf(&b, "%s\t%s\n", ip, name)
	}
	for _, a := range n.cfg.Networks.Attachments(r.runtimeID()) {
		fmt.Fprintf(&b, "%s\t%s\n", a.Addr.Addr(), r.hostname())
	}
	return b.String(), nil
}

func parseBytes(s string) (int64, error) { return units.RAMInBytes(s) }

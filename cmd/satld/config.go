// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"satld/cluster"
	"satld/image"
	"satld/platform"
)

// Config is what satld is told by its flags and its file; flags win. Each
// flag is also a key of the file, dashes written as underscores.
type Config struct {
	Socket        string `toml:"socket"`
	StateDir      string `toml:"state_dir"`
	ListenAddr    string `toml:"listen_addr"`
	AdvertiseAddr string `toml:"advertise_addr"`
	Runtime       string `toml:"runtime"`
	NetworkName   string `toml:"network_name"`
	NetworkPool   string `toml:"network_pool"`
	OverlayPool   string `toml:"overlay_pool"`
	Redirect      string `toml:"redirect"`
	MetricsAddr   string `toml:"metrics_addr"`
	DashboardAddr string `toml:"dashboard_addr"`
	AppsAddr      string `toml:"apps_addr"`
	ZFSRoot       string `toml:"zfs_root"`
	LogLevel      string `toml:"log_level"`
	LogFormat     string `toml:"log_format"`
	LogOutput     string `toml:"log_output"`

	NodeHealth NodeHealth `toml:"node_health"`

	// ForceNewCluster is for one start only, so it is a flag and no key.
	ForceNewCluster bool `toml:"-"`
}

// defaults are the values of a daemon that is told nothing, by platform.
func defaults(goos string) Config {
	c := Config{
		Socket:      "/var/run/satl.sock",
		StateDir:    "/var/lib/satl",
		ListenAddr:  "0.0.0.0:2377",
		Runtime:     "runc",
		NetworkName: "satl0",
		NetworkPool: "10.88.0.0/16",
		OverlayPool: cluster.DefaultOverlayPool.String(),
		Redirect:    "nft",
		LogLevel:    "info",
		LogFormat:   "text",
		LogOutput:   outputStderr,
		NodeHealth:  defaultNodeHealth(),
	}
	if goos == "freebsd" {
		c.StateDir, c.Runtime, c.Redirect, c.LogOutput = "/var/db/satl", "ocijail", "pf", outputSyslog
	}
	return c
}

// Where the log goes, and the socket of the host's syslogd by platform.
const (
	outputStderr = "stderr"
	outputSyslog = "syslog"
)

var syslogSocket = map[string]string{"freebsd": "/var/run/log", "linux": "/dev/log"}[platform.OS]

// defaultConfigFile is read when no --config is given and it exists.
func defaultConfigFile(goos string) string {
	if goos == "freebsd" {
		return "/usr/local/etc/satl/satld.toml"
	}
	return "/etc/satl/satld.toml"
}

// register binds the flags to the fields of c, whose values are the defaults.
func (c *Config) register(f *pflag.FlagSet) {
	f.StringVar(&c.Socket, "socket", c.Socket, "unix `path` of the Docker API")
	f.StringVar(&c.StateDir, "state-dir", c.StateDir, "`directory` of everything that is kept")
	f.StringVar(&c.ListenAddr, "listen-addr", c.ListenAddr, "`host:port` for the other nodes of the cluster")
	f.StringVar(&c.AdvertiseAddr, "advertise-addr", c.AdvertiseAddr, "`host:port` the other nodes reach this one at (default: from --listen-addr)")
	f.StringVar(&c.Runtime, "runtime", c.Runtime, "`path` or name of the container runtime")
	f.StringVar(&c.NetworkName, "network-name", c.NetworkName, "`name` of the default network and of its bridge, at most 15 characters")
	f.StringVar(&c.NetworkPool, "network-pool", c.NetworkPool, "`CIDR` that networks get their addresses from")
	f.StringVar(&c.OverlayPool, "overlay-pool", c.OverlayPool, "`CIDR` that overlay networks get their subnets from, in the cluster that this daemon makes at its first start")
	f.StringVar(&c.Redirect, "redirect", c.Redirect, "how published ports are redirected: `pf|nft|off`; pf-check only has pfctl check the rules and loads none")
	f.StringVar(&c.MetricsAddr, "metrics-addr", c.MetricsAddr, "`host:port` to serve Prometheus metrics on (default: off)")
	f.StringVar(&c.DashboardAddr, "dashboard-addr", c.DashboardAddr, "`host:port` to serve a read-only page of services and health on (default: off)")
	f.StringVar(&c.AppsAddr, "apps-addr", c.AppsAddr, "`host:port` to answer load balancers on about applications' health (default: off)")
	f.StringVar(&c.ZFSRoot, "zfs-root", c.ZFSRoot, "`dataset` for images and roots, or off for plain copies (FreeBSD; default: the one mounted at --state-dir)")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "`level`: debug, info, warn or error")
	f.BoolVar(&c.ForceNewCluster, "force-new-cluster", false, "make a cluster of this node alone out of its last good state (no key of the file)")
	f.StringVar(&c.LogFormat, "log-format", c.LogFormat, "`format`: text or json")
	c.NodeHealth.register(f)
	f.StringVar(&c.LogOutput, "log-output", c.LogOutput, "`where` the log goes: stderr or syslog")
}

// load reads flags and file into a Config and checks it.
func load(goos string, args []string) (Config, error) {
	c := defaults(goos)
	flags := pflag.NewFlagSet("satld", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	file := flags.String("config", "", "")
	c.register(flags)
	if err := flags.Parse(args); err != nil {
		return c, usageError{err}
	}
	if flags.NArg() > 0 {
		return c, usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	}
	path, must := *file, *file != ""
	if !must {
		path = defaultConfigFile(goos)
	}
	if err := c.readFile(path); err != nil && (must || !errors.Is(err, fs.ErrNotExist)) {
		return c, err
	}
	// Flags win over the file: the command line is read once more, over it.
	if err := flags.Parse(args); err != nil {
		return c, usageError{err}
	}
	return c, c.check()
}

// readFile lays the file's keys over c; an unknown key is an error.
func (c *Config) readFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	dec := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields()
	if err := dec.Decode(c); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) {
			return fmt.Errorf("configuration %s: unknown key %s", path, strings.Join(strict.Errors[0].Key(), "."))
		}
		var decode *toml.DecodeError
		if errors.As(err, &decode) {
			row, col := decode.Position()
			return fmt.Errorf("configuration %s: line %d, column %d: %w", path, row, col, err)
		}
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	return nil
}

var networkName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,14}$`)

// check says what of the configuration cannot work, naming the flag.
func (c Config) check() error {
	bad := func(flag, value, why string) error {
		return usageError{fmt.Errorf("--%s %q: %s", flag, value, why)}
	}
	if !filepath.IsAbs(c.Socket) {
		return bad("socket", c.Socket, "must be an absolute path")
	}
	if len(c.Socket) > 100 {
		return bad("socket", c.Socket, "is too long for a unix socket (at most 100 characters)")
	}
	if !filepath.IsAbs(c.StateDir) || filepath.Clean(c.StateDir) == "/" {
		return bad("state-dir", c.StateDir, "must be an absolute path below /")
	}
	if c.Runtime == "" {
		return bad("runtime", c.Runtime, "must name the container runtime")
	}
	if !networkName.MatchString(c.NetworkName) {
		return bad("network-name", c.NetworkName, "must start with a lower-case letter and hold at most 15 of a-z, 0-9, _ and -")
	}
	if p, err := netip.ParsePrefix(c.NetworkPool); err != nil || !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 28 || p.Masked() != p {
		return bad("network-pool", c.NetworkPool, "must be an IPv4 network such as 10.88.0.0/16, from /8 to /28")
	}
	switch p, err := netip.ParsePrefix(c.OverlayPool); {
	case err != nil || !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 20 || p.Masked() != p:
		return bad("overlay-pool", c.OverlayPool, "must be an IPv4 network such as 10.89.0.0/16, from /8 to /20")
	case p.Overlaps(netip.MustParsePrefix(c.NetworkPool)):
		return bad("overlay-pool", c.OverlayPool, "must not overlap --network-pool "+c.NetworkPool)
	}
	switch c.Redirect {
	case "pf", pfCheck, "nft", "off":
	default:
		return bad("redirect", c.Redirect, "must be pf, pf-check, nft or off")
	}
	if want := defaults(platform.OS).Redirect; c.Redirect != "off" && c.Redirect != want && c.Redirect != want+"-check" {
		return bad("redirect", c.Redirect, "is not of this platform: use "+want+" or off")
	}
	addrs := []struct {
		flag, value string
		optional    bool
	}{
		{"listen-addr", c.ListenAddr, false},
		{"advertise-addr", c.AdvertiseAddr, true},
		{"metrics-addr", c.MetricsAddr, true},
		{"dashboard-addr", c.DashboardAddr, true},
		{"apps-addr", c.AppsAddr, true},
	}
	for _, a := range addrs {
		if a.value == "" && a.optional {
			continue
		}
		if _, _, err := net.SplitHostPort(a.value); err != nil {
			return bad(a.flag, a.value, "must be host:port")
		}
	}
	if _, err := logLevel(c.LogLevel); err != nil {
		return bad("log-level", c.LogLevel, "must be debug, info, warn or error")
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return bad("log-format", c.LogFormat, "must be text or json")
	}
	if c.LogOutput != outputStderr && c.LogOutput != outputSyslog {
		return bad("log-output", c.LogOutput, "must be stderr or syslog")
	}
	if err := c.NodeHealth.check(); err != nil {
		return err
	}
	if c.ZFSRoot == "" {
		return nil
	}
	if platform.OS != "freebsd" {
		return bad("zfs-root", c.ZFSRoot, "is for FreeBSD: roots are overlay mounts here")
	}
	if err := image.CheckDataset(c.ZFSRoot); err != nil && c.ZFSRoot != image.ZFSOff {
		return bad("zfs-root", c.ZFSRoot, "must be the name of a dataset, such as zroot/satl, or off")
	}
	return nil
}

func logLevel(s string) (slog.Level, error) {
	var l slog.Level
	err := l.UnmarshalText([]byte(s))
	return l, err
}

// usageError is a command line or configuration that cannot work: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

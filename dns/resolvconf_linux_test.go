// SPDX-License-Identifier: BSD-2-Clause

package dns

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"satld/network/nettest"
)

func TestResolvConfIsReadAgain(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		t.Helper()
		// As resolvconf(8) and systemd do: a new file in its place.
		nettest.Must(t, os.WriteFile(conf+".new", []byte(text), 0o644))
		nettest.Must(t, os.Rename(conf+".new", conf))
	}
	u := &upstreams{path: conf, own: func(netip.AddrPort) bool { return false }}
	now := time.Unix(1000, 0)
	check := func(step string, want ...string) {
		t.Helper()
		now = now.Add(rereadEvery)
		var got []string
		for _, a := range u.list(now) {
			got = append(got, a.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", step, got, want)
		}
	}
	check("no file")
	write("# one\nnameserver 192.0.2.1\n")
	check("one", "192.0.2.1:53")
	write("nameserver 192.0.2.2\nnameserver 192.0.2.3\n")
	check("two", "192.0.2.2:53", "192.0.2.3:53")
	check("unchanged", "192.0.2.2:53", "192.0.2.3:53")
	nettest.Must(t, os.Remove(conf))
	check("gone")
}

func TestParseResolvConf(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"nameserver 127.0.0.53\noptions edns0\nsearch example.com\n":   "127.0.0.53:53",
		"; c\n#nameserver 1.1.1.1\n nameserver\t8.8.8.8 # x\n":         "8.8.8.8:53",
		"nameserver\nnameserver nonsense\nnameserver 2001:db8::1\n":    "[2001:db8::1]:53",
		"nameserver fe80::1%eth0\nnameserver ::ffff:192.0.2.1\nname x": "[fe80::1%eth0]:53 192.0.2.1:53",
	} {
		var got []string
		for _, a := range parseResolvConf([]byte(text)) {
			got = append(got, a.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
	}
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add([]byte("nameserver 1.1.1.1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, a := range parseResolvConf(text) {
			if !a.IsValid() {
				t.Error(a)
			}
		}
	})
}

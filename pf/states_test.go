// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"satld/redirect"
)

// The listing is what FreeBSD 14 printed of flows made for it.
func TestStates(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "states.txt"))
	if err != nil {
		t.Fatal(err)
	}
	states := parseStates(string(text))
	var ids []string
	for _, s := range states {
		ids = append(ids, s.id)
	}
	if got := strings.Join(ids, " "); got != "01 02 03 04 05 06 07 08 10 11 12 13" {
		t.Fatalf("%+v", states)
	}
	if s := states[0]; s.proto != "udp" || s.backend.String() != "10.89.0.2:5300" || s.dialled.String() != "10.89.0.1:5300" || s.halfOpen {
		t.Errorf("%+v", s)
	}
	h := hostView{subnets: []redirect.Subnet{{Prefix: netip.MustParsePrefix("10.89.0.0/24")}},
		local: []netip.Addr{netip.MustParseAddr("10.89.0.1"), netip.MustParseAddr("192.0.2.1")}}
	udp := redirect.Flow{Proto: "udp", Published: 5300}
	tcp := redirect.Flow{Proto: "tcp", Published: 8080}
	gone := redirect.Flow{Proto: "tcp", Published: 8080, Backend: ports("10.89.0.2:80")[0], All: true}
	for i, c := range []struct {
		flow redirect.Flow
		keep string
		want string
	}{
		// 06 was not redirected yet, 08 only passes through, 02 is the other
		// half of 01, 10 one that lost its own; 11 is the host's, 07 of another port.
		{udp, "", "01 06 02 10"},
		{udp, "10.89.0.2:5300", "06 10"},
		{tcp, "", "04 10"}, // the established one stays (pool-2)
		{tcp, "10.89.0.2:80", "10"},
		{gone, "", "03 04 10 12"},
		{redirect.Flow{Proto: "tcp", Published: 8080, Backend: ports("10.89.0.3:80")[0], All: true}, "", "10"},
		{redirect.Flow{Proto: "tcp", HostIP: netip.MustParseAddr("192.0.2.1"), Published: 8080}, "", "04 10"},
		{redirect.Flow{Proto: "tcp", HostIP: netip.MustParseAddr("192.0.2.2"), Published: 8080}, "", "10"},
		{redirect.Flow{Proto: "tcp", Published: 22}, "", "10"}, // the operator's own (pool-9)
		{redirect.Flow{Proto: "tcp", Published: 22, All: true}, "", "10"},
	} {
		if c.keep != "" {
			c.flow.Keep = ports(c.keep)
		}
		if got := strings.Join(kills(states, []redirect.Flow{c.flow}, h), " "); got != c.want {
			t.Errorf("row %d: %s, want %s", i, got, c.want)
		}
	}
}

// Members on other nodes are cut as those here are, both halves, of which the
// second has this node's address in the overlay for the client's. What tasks of
// two nodes say to each other, which pf sees where the bridges' ports are
// filtered, and what another node redirected to a task here, stays.
func TestRemoteStates(t *testing.T) {
	const listing = `all udp 10.0.1.20:5300 (192.0.2.1:5300) <- 198.51.100.7:4000       MULTIPLE:MULTIPLE
   id: 01 creatorid: 1
all udp 10.0.1.7:60000 (198.51.100.7:4000) -> 10.0.1.20:5300       MULTIPLE:MULTIPLE
   id: 02 creatorid: 1
all tcp 10.0.1.20:80 (192.0.2.1:8080) <- 198.51.100.7:4001       ESTABLISHED:ESTABLISHED
   id: 03 creatorid: 1
all tcp 10.0.1.7:60001 (198.51.100.7:4001) -> 10.0.1.20:80       ESTABLISHED:ESTABLISHED
   id: 04 creatorid: 1
all udp 10.0.1.20:5300 <- 10.0.1.30:5000       SINGLE:MULTIPLE
   id: 05 creatorid: 1
all udp 10.0.1.30:5000 -> 10.0.1.20:5300       MULTIPLE:SINGLE
   id: 06 creatorid: 1
all udp 10.0.1.30:5300 <- 10.0.1.8:6000       SINGLE:MULTIPLE
   id: 07 creatorid: 1
all udp 10.0.1.8:6000 -> 10.0.1.30:5300       MULTIPLE:SINGLE
   id: 08 creatorid: 1
all udp 192.0.2.1:30000 -> 192.0.2.2:4789       MULTIPLE:SINGLE
   id: 09 creatorid: 1
all udp 10.0.1.7:60002 -> 10.0.1.20:5300       MULTIPLE:SINGLE
   id: 10 creatorid: 1
all tcp 10.0.1.7:60003 -> 10.0.1.20:80       ESTABLISHED:ESTABLISHED
   id: 11 creatorid: 1
all tcp 10.0.1.40:6001 -> 10.0.1.20:80       ESTABLISHED:ESTABLISHED
   id: 12 creatorid: 1
`
	const left = `all tcp 10.0.1.7:60004 (198.51.100.7:4002) -> 10.0.1.20:80       ESTABLISHED:ESTABLISHED
   id: 13 creatorid: 1
all udp 10.0.1.7:60005 (198.51.100.7:4003) -> 10.0.1.20:5300       MULTIPLE:MULTIPLE
   id: 14 creatorid: 1
`
	h := hostView{subnets: []redirect.Subnet{front, across},
		local: []netip.Addr{netip.MustParseAddr("192.0.2.1"), front.Gateway(), across.Gateway()}}
	gone := ports("10.0.1.20:80")[0]
	for i, c := range []struct {
		flow redirect.Flow
		want string
	}{
		{redirect.Flow{Proto: "udp", Published: 5300, Keep: ports("10.0.1.20:5300")}, ""},
		{redirect.Flow{Proto: "udp", Published: 5300, Keep: ports("10.0.1.21:5300")}, "01 02"},
		{redirect.Flow{Proto: "tcp", Published: 8080}, ""},
		{redirect.Flow{Proto: "tcp", Published: 8080, Backend: gone, All: true}, "03 04"},
	} {
		if got := strings.Join(kills(parseStates(listing), []redirect.Flow{c.flow}, h), " "); got != c.want {
			t.Errorf("row %d: %s, want %s", i, got, c.want)
		}
		// Halves of which an earlier try had killed the other one.
		if got, want := strings.Join(kills(parseStates(listing+left), []redirect.Flow{c.flow}, h), " "), strings.TrimSpace(c.want+" 13 14"); got != want {
			t.Errorf("row %d: %s, want %s", i, got, want)
		}
	}
}

func FuzzParseStates(f *testing.F) {
	f.Add("all udp 10.89.0.2:5300 (10.89.0.1:5300) <- 10.89.0.4:4445 A:B\n   id: 1 creatorid: 2\n")
	f.Add("all udp a b <- c\n <-\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range parseStates(text) {
			if s.id == "" || !s.backend.IsValid() || !s.dialled.IsValid() {
				t.Errorf("%+v", s)
			}
		}
		missingHooks(text, text)
		skips(text, "lo0")
		leftovers(text, redirect.Rules{})
	})
}

// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"net"
	"testing"
)

// What an operator gives to advertise may be an interface, as in Docker, and is
// refused where nobody could reach it.
func TestGivenAddr(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "10.0.0.5": "10.0.0.5", "10.0.0.5:99": "10.0.0.5:99", "fd00::5": "fd00::5", "[fd00::5]:99": "[fd00::5]:99",
		"localhost": "localhost", "localhost:99": "localhost:99",
	} {
		if got, err := givenAddr(t.Context(), given); err != nil || got != want {
			t.Errorf("%q: %q, %v", given, got, err)
		}
	}
	for _, given := range []string{"999.1.1.1", "nonsense!", "10.0.0.5:0", "10.0.0.5:70000", "10.0.0.5:x"} {
		if got, err := givenAddr(t.Context(), given); err == nil {
			t.Errorf("%q is taken as %q", given, got)
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, ifi := range all {
		addrs, err := ifi.Addrs()
		if err != nil {
			continue // gone meanwhile
		}
		want := firstGlobal(addrs)
		if !want.IsValid() {
			continue
		}
		if got, err := givenAddr(t.Context(), ifi.Name+":99"); err != nil || got != net.JoinHostPort(want.String(), "99") {
			t.Errorf("interface %s with %v: %q, %v", ifi.Name, addrs, got, err)
		}
	}
}

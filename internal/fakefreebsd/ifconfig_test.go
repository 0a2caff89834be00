// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"strings"
	"testing"

	"satld/internal/fakefreebsd/world"
)

func TestIfconfigSpeaksAsCaptured(t *testing.T) {
	h := newHost(t)
	for want, line := range map[string]string{
		"interface satlnt-nope does not exist":                "ifconfig satlnt-nope",
		"jail not found: No such file or directory":           "ifconfig -j nobody epair0b up",
		"malformed link-level address":                        "ifconfig vtnet0 ether 02:zz",
		"ioctl (SIOCDIFADDR): Can't assign requested address": "ifconfig vtnet0 inet 203.0.113.1/24 -alias",
	} {
		h.refused("ifconfig: "+want, line)
	}
	if got := h.do("ifconfig bridge create name satlnt-br0"); got != "satlnt-br0\n" {
		t.Errorf("%q", got)
	}
	if r := h.run("", "ifconfig", "bridge", "create", "name", "satlnt-br0"); r.out != "bridge1\n" || r.exit != 1 || r.err != "ifconfig: ioctl SIOCSIFNAME (set name): File exists\n" {
		t.Errorf("%+v: the bridge stays under the name it was born with", r)
	}
	h.do("ifconfig bridge1 destroy")
	sample(t, "ifconfig_bridge_new.txt", h.do("ifconfig satlnt-br0"))
	if got := h.do("ifconfig epair create"); got != "epair0a\n" {
		t.Errorf("%q", got)
	}
	h.do("ifconfig epair0a group satlnt description satl:0123456789abcdefghijklmno")
	h.do("ifconfig satlnt-br0 group satlnt description satl:network:satlnt")
	h.do("ifconfig satlnt-br0 addm epair0a inet 10.77.77.1/24 up")
	h.do("ifconfig epair0a up")
	sample(t, "ifconfig_bridge.txt", h.do("ifconfig satlnt-br0"))
	sample(t, "ifconfig_epair.txt", h.do("ifconfig epair0a"))
	if got := h.do("ifconfig -g satlnt"); got != "satlnt-br0\nepair0a\n" {
		t.Errorf("%q", got)
	}
	for want, line := range map[string]string{
		"BRDGADD epair0a: File exists (Interface is already a member of this bridge)": "ifconfig satlnt-br0 addm epair0a",
		"BRDGDEL ice1: No such file or directory (Interface is not a bridge member)":  "ifconfig satlnt-br0 deletem ice1",
		"ioctl SIOCSIFMTU (set mtu): Operation not supported":                         "ifconfig epair0a mtu 1450",
		"setifgroup: group names may not end in a digit":                              "ifconfig epair0a group satl0",
		"ioctl SIOCSIFNAME (set name): Invalid argument":                              "ifconfig epair0a name sixteen-letters-",
	} {
		h.refused("ifconfig: "+want, line)
	}
	h.do("ifconfig epair0b destroy")
	h.do("ifconfig epair20433 create")
	h.refused("ifconfig: interface epair20433 already exists", "ifconfig epair20433 create")
	h.do("ifconfig epair20433a description mine group mine name pair destroy")
	if got := h.do("ifconfig -l"); got != "vtnet0 lo0 satlnt-br0\n" || strings.Contains(h.do("ifconfig satlnt-br0"), "epair0a") {
		t.Errorf("%q: both ends go, and leave their bridge", got)
	}
}

func TestIfconfigOfBefore14(t *testing.T) {
	h := newHost(t)
	h.Knobs(func(k *world.Knobs) { k.NoDashJ = true })
	h.refused("ifconfig: illegal option -- j", "ifconfig -j web lo0 up")
	h.refused("route: illegal option -- j", "route -j web add default 10.0.0.1")
}

func TestRouteAndNetstat(t *testing.T) {
	h := newHost(t)
	sample(t, "route_get_default.txt", h.do("route -n get default"))
	h.do("ifconfig bridge create name satl0")
	h.do("ifconfig satl0 inet 10.88.0.1/20 up")
	r := h.run("", "route", "add", "default", "192.0.2.1")
	if r.exit != 1 || r.out != "add net default: gateway 192.0.2.1 fib 0: route already in table\n" || r.err != "route: message indicates error: File exists\n" {
		t.Errorf("%+v", r)
	}
	sample(t, "netstat.txt", strings.Join(strings.FieldsFunc(h.do("netstat -rn -f inet"), func(r rune) bool { return r == ' ' }), " "))
}

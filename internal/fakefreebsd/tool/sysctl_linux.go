// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"satld/internal/fakefreebsd/world"
)

// tunables are set in loader.conf(5) only.
var tunables = []string{"kern.racct.enable", "kern.boottime", "kern.osrelease", "kern.osreldate", "hw.physmem", "hw.ncpu"}

// perVNET are a jail's own when it has a VNET.
func perVNET(oid string) bool {
	return strings.HasPrefix(oid, "net.inet.tcp.") || strings.HasPrefix(oid, "net.inet.ip.") || strings.HasPrefix(oid, "net.pf.")
}

// sysctl(8): `[-i] [-n] [-q] [-j JAIL] NAME[=VALUE] ...`.
func sysctl(c *call) int {
	var names []string
	bare, ignore := false, false
	inside := c.inside
	for i := 0; i < len(c.args); i++ {
		switch a := c.args[i]; {
		case a == "-j" && i+1 < len(c.args):
			i++
			inside = c.args[i]
		case strings.HasPrefix(a, "-"):
			bare = bare || strings.Contains(a, "n")
			ignore = ignore || strings.Contains(a, "i")
		default:
			names = append(names, a)
		}
	}
	exit := 0
	c.update(func(w *world.World) {
		values := w.Sysctls
		if inside != "" {
			j := w.LiveJail(inside)
			if j == nil {
				exit = c.fail(1, "jail not found: No such file or directory")
				return
			}
			if j.VNET {
				if j.Sysctls == nil {
					j.Sysctls = map[string]string{}
				}
				values = j.Sysctls
			}
		}
		for _, n := range names {
			oid, value, set := strings.Cut(n, "=")
			here := values
			if !perVNET(oid) {
				here = w.Sysctls
			}
			old, ok := here[oid]
			if table, found := ftable(w, oid); found {
				old, ok = table, true
			}
			if !ok {
				old, ok = defaultOf(w, oid)
			}
			switch {
			case !ok && ignore:
			case !ok:
				fmt.Fprintf(os.Stderr, "sysctl: unknown oid '%s'\n", oid)
				exit = 1
			case !set && bare:
				c.printf("%s\n", old)
			case !set:
				c.printf("%s: %s\n", oid, old)
			case slices.Contains(tunables, oid):
				fmt.Fprintf(os.Stderr, "sysctl: oid '%s' is a read only tunable\nsysctl: Tunable values are set in /boot/loader.conf\n", oid)
				exit = 1
			default:
				here[oid] = value
				if !bare {
					c.printf("%s: %s -> %s\n", oid, old, value)
				} else {
					c.printf("%s\n", value)
				}
			}
		}
	})
	return exit
}

// defaultOf is a VNET's own value before anybody set it: the kernel's, not
// the host's.
func defaultOf(w *world.World, oid string) (string, bool) {
	if _, ok := w.Sysctls[oid]; !ok {
		return "", false
	}
	switch oid {
	case "net.inet.tcp.msl":
		return "30000", true
	case "net.inet.ip.forwarding":
		return "0", true
	}
	return w.Sysctls[oid], true
}

// kldstat(8): `-q -m NAME`, `-q -n FILE`, or a list.
func kldstat(c *call) int {
	quiet, name := false, ""
	for i := 0; i < len(c.args); i++ {
		switch a := c.args[i]; {
		case (a == "-m" || a == "-n") && i+1 < len(c.args):
			i++
			name = strings.TrimSuffix(c.args[i], ".ko")
		case a == "-q":
			quiet = true
		case a == "-v":
		default:
			return c.fail(1, "illegal option -- %s", strings.TrimPrefix(a, "-"))
		}
	}
	exit := 0
	c.update(func(w *world.World) {
		if name == "" {
			c.printf("Id Refs Address                Size Name\n")
			for i, m := range append([]string{"kernel"}, w.Modules...) {
				if i > 0 {
					m += ".ko"
				}
				c.printf("%2d %4d 0xffffffff80200000 %8x %s\n", i+1, 1, 0x3000, m)
			}
			return
		}
		if !slices.Contains(w.Modules, name) {
			exit = 1
			if !quiet {
				fmt.Fprintf(os.Stderr, "kldstat: can't find module %s: No such file or directory\n", name)
			}
			return
		}
		if !quiet {
			c.printf("Id  Refs Name\n%3d %4d %s\n", 1, 1, name)
		}
	})
	return exit
}

// kldload(8): `[-n] NAME ...`.
func kldload(c *call) int {
	exit := 0
	c.update(func(w *world.World) {
		again := slices.Contains(c.args, "-n")
		for _, a := range c.args {
			switch {
			case strings.HasPrefix(a, "-"):
			case !slices.Contains(w.Modules, a):
				w.Modules = append(w.Modules, a)
			case !again:
				exit = c.fail(1, "can't load %s: module already loaded or in kernel", a)
			}
		}
	})
	return exit
}

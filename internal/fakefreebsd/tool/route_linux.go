// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"satld/internal/fakefreebsd/world"
)

// route(8): `[-j JAIL] [-n] add|delete|get DESTINATION [GATEWAY]`.
func route(c *call) int {
	args, inside := c.args, c.inside
	var words []string
	for len(args) > 0 {
		switch a := args[0]; {
		case a == "-j" && len(args) > 1:
			jail, exit := c.dashJ(args[1])
			if exit != 0 {
				return exit
			}
			inside, args = jail, args[1:]
		case a == "-n" || a == "-q" || a == "-4" || a == "-inet" || a == "-net" || a == "-host":
		case strings.HasPrefix(a, "-"):
			return c.fail(1, "illegal option -- %s", a[1:])
		default:
			words = append(words, a)
		}
		args = args[1:]
	}
	if len(words) < 2 {
		return c.fail(64, "usage: route [-46dnqtv] command [[modifiers] args]")
	}
	exit := 0
	c.update(func(w *world.World) {
		switch verb, dest := words[0], words[1]; verb {
		case "get":
			exit = c.routeGet(w, inside, dest)
		case "add":
			exit = c.routeAdd(w, inside, words)
		case "delete", "del":
			before := len(w.Routes)
			w.Routes = slices.DeleteFunc(w.Routes, func(r world.Route) bool { return r.Jail == inside && r.Dest == dest })
			if len(w.Routes) == before {
				exit = c.fail(1, "message indicates error: No such process")
			}
		default:
			exit = c.fail(64, "bad keyword: %s", verb)
		}
	})
	return exit
}

func (c *call) routeAdd(w *world.World, inside string, args []string) int {
	if len(args) != 3 {
		return c.fail(64, "usage: route [-46dnqtv] command [[modifiers] args]")
	}
	dest, gateway := args[1], args[2]
	line := fmt.Sprintf("add net %s: gateway %s", dest, gateway)
	if slices.ContainsFunc(w.Routes, func(r world.Route) bool { return r.Jail == inside && r.Dest == dest }) {
		c.printf("%s fib 0: route already in table\n", line)
		return c.fail(1, "message indicates error: File exists")
	}
	via := linkFor(w, inside, gateway)
	if via == nil {
		c.printf("%s fib 0: Network is unreachable\n", line)
		return c.fail(1, "message indicates error: Network is unreachable")
	}
	if err := plumb(w).route(w, inside, via, dest, gateway); err != nil {
		return c.fail(1, "message indicates error: %s", words(err))
	}
	w.Routes = append(w.Routes, world.Route{Jail: inside, Dest: dest, Gateway: gateway, Link: via.Name})
	c.printf("%s\n", line)
	return 0
}

// linkFor is the interface whose subnet an address is in.
func linkFor(w *world.World, jail, addr string) *world.Link {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return nil
	}
	for _, l := range w.Links {
		for _, p := range l.Inet {
			if l.Jail == jail && l.Up && netip.MustParsePrefix(p).Contains(a) {
				return l
			}
		}
	}
	return nil
}

func (c *call) routeGet(w *world.World, inside, dest string) int {
	via, gateway := linkFor(w, inside, dest), ""
	if via == nil {
		if i := slices.IndexFunc(w.Routes, func(r world.Route) bool { return r.Jail == inside && r.Dest == "default" }); i >= 0 {
			gateway = w.Routes[i].Gateway
			via = w.Link(inside, w.Routes[i].Link)
		}
	}
	if via == nil {
		fmt.Fprintf(os.Stderr, "route: route has not been found\n")
		return 1
	}
	to, mask := dest, ""
	if dest == "default" {
		to, mask = "0.0.0.0", "       mask: 0.0.0.0\n"
	}
	c.printf("   route to: %s\ndestination: %s\n%s", to, to, mask)
	if gateway != "" {
		c.printf("    gateway: %s\n", gateway)
	}
	c.printf("        fib: 0\n  interface: %s\n      flags: <UP,GATEWAY,DONE,STATIC>\n", via.Name)
	c.printf(" recvpipe  sendpipe  ssthresh  rtt,msec    mtu        weight    expire\n")
	c.printf("       0         0         0         0      %d         1         0 \n", via.MTU)
	return 0
}

// netstat(1): -rn, of IPv4.
func netstat(c *call) int {
	if len(c.args) == 0 || !strings.Contains(c.args[0], "r") {
		return c.fail(1, "the fake does only netstat -rn")
	}
	c.update(func(w *world.World) {
		c.printf("Routing tables\n\nInternet:\n%-18s %-18s %-9s %10s %s\n", "Destination", "Gateway", "Flags", "Netif", "Expire")
		row := func(dest, gateway, flags, link string) {
			c.printf("%-18s %-18s %-9s %10s\n", dest, gateway, flags, link)
		}
		for _, r := range w.Routes {
			if r.Jail == c.inside {
				row(r.Dest, r.Gateway, "UGS", r.Link)
			}
		}
		for _, l := range w.Links {
			for _, text := range l.Inet {
				if l.Jail != c.inside {
					continue
				}
				p := netip.MustParsePrefix(text)
				link := fmt.Sprintf("link#%d", l.Index)
				if l.Kind == "lo" {
					row(p.Addr().String(), link, "UH", l.Name)
					continue
				}
				row(p.Masked().String(), link, "U", l.Name)
				row(p.Addr().String(), link, "UHS", "lo0")
			}
		}
	})
	return 0
}

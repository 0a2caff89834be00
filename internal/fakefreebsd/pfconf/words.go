// SPDX-License-Identifier: BSD-2-Clause

package pfconf

import (
	"slices"
	"strconv"
	"strings"
)

// What rules of all kinds are made of: hosts, ports, ends, interfaces.

func (p *parser) host() (string, error) {
	not := ""
	if p.is("!") {
		not = "! "
	}
	if p.peek().text == "<" {
		name, err := p.angle()
		return not + "<" + name + ">", err
	}
	if p.is("(") {
		name, err := p.word()
		if err != nil {
			return "", err
		}
		if !p.is(")") {
			return "", p.syntax()
		}
		return not + "(" + name + ")", nil
	}
	w, err := p.word()
	switch {
	case err != nil:
		return "", err
	case w == "any" || w == "self" || w == "no-route" || w == "urpf-failed" || isAddress(w):
		return not + w, nil
	case isName(w): // an interface: its addresses as they are now
		return not + "(" + w + ")", nil
	}
	return "", p.refuse("could not parse host specification")
}

// isName tells whether a word can be an interface's name.
func isName(w string) bool {
	w, _, _ = strings.Cut(w, ":")
	return len(w) > 0 && len(w) <= 15 && (w[0] >= 'a' && w[0] <= 'z' || w[0] >= 'A' && w[0] <= 'Z')
}

func (p *parser) port() (string, error) {
	op := ""
	for _, o := range []string{"=", "!=", "<=", ">=", "<", ">"} {
		if p.is(o) {
			op = o
			break
		}
	}
	w, err := p.word()
	if err != nil {
		return "", err
	}
	low, high, isRange := strings.Cut(w, ":")
	for _, n := range []string{low, high} {
		if n == "" || n == "*" && isRange {
			continue
		}
		if _, ok := services[n]; ok && !isRange {
			w = strconv.Itoa(services[n])
		} else if v, err := strconv.Atoi(n); err != nil || v < 0 || v > 65535 {
			return "", p.refuse("unknown port %s", n)
		}
	}
	if op != "" && op != "=" {
		w = op + " " + w
	}
	return w, nil
}

// ends reads all, or from ... to ....
func (p *parser) ends() (from, to [2][]string, err error) {
	from[0], to[0] = []string{"any"}, []string{"any"}
	if p.is("all") {
		return from, to, nil
	}
	for _, side := range []struct {
		word string
		end  *[2][]string
	}{{"from", &from}, {"to", &to}} {
		if !p.is(side.word) {
			continue
		}
		if p.peek().text != "port" {
			if side.end[0], err = p.choices(p.host); err != nil {
				return from, to, err
			}
		}
		if p.is("port") {
			if side.end[1], err = p.choices(p.port); err != nil {
				return from, to, err
			}
		}
	}
	return from, to, nil
}

// where reads [on IF] [inet] [proto P].
func (p *parser) where(r *Rule) (protos []string, err error) {
	if p.is("on") {
		if p.is("!") {
			r.On = "! "
		}
		w, err := p.word()
		if err != nil {
			return nil, err
		}
		if !isName(w) || slices.Contains([]string{"inet", "inet6", "proto", "from", "to", "all"}, w) {
			return nil, p.syntax()
		}
		r.On += w
	}
	for _, af := range []string{"inet", "inet6"} {
		if p.is(af) {
			r.AF = af
		}
	}
	if !p.is("proto") {
		return nil, nil
	}
	return p.choices(func() (string, error) {
		w, err := p.word()
		if err == nil && !slices.Contains([]string{"tcp", "udp", "sctp", "icmp", "icmp6", "esp", "ah", "gre", "carp"}, w) {
			err = p.refuse("unknown protocol %s", w)
		}
		return w, err
	})
}

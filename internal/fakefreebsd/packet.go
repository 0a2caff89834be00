// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"satld/internal/fakefreebsd/pfconf"
	"satld/internal/fakefreebsd/world"
)

// Verdict is what becomes of a packet.
type Verdict struct {
	// Backend is the member that it is sent to; invalid when nobody translates it.
	Backend netip.AddrPort
	// Refused: a block return answers. Dropped: it vanishes, as one does that
	// is redirected to an empty table. Neither, and no Backend: the host itself
	// answers.
	Refused, Dropped bool
}

// Packet asks what pf does with a packet of a flow ("tcp", "198.51.100.7:4000",
// "192.0.2.10:8080"), and lets it pass: states are made and renewed. The first
// TCP packet of a flow leaves it half open, the second establishes it.
//
// Packets of the host itself, by their source, are not redirected, except to an
// address of its own when net.pf.filter_local is 1.
func (f *Fake) Packet(proto, from, to string) (v Verdict) {
	f.t.Helper()
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	f.update(func(w *world.World) { v = path{w, proto, src, dst}.pass(f) })
	return v
}

// States are pf's entries that have an address, as client, as what was dialled
// or as the member; "" is all.
func (f *Fake) States(addr string) (out []world.State) {
	f.t.Helper()
	for _, s := range f.read().PF.States {
		if addr == "" || slices.ContainsFunc([]string{s.Client, s.Dialled, s.Backend}, func(e string) bool {
			a, err := netip.ParseAddrPort(e)
			return err == nil && a.Addr().String() == addr
		}) {
			out = append(out, s)
		}
	}
	return out
}

// Anchor is the text that an anchor was loaded with.
func (f *Fake) Anchor(name string) (text string, ok bool) {
	f.t.Helper()
	text, ok = f.read().PF.Anchors[name]
	return text, ok
}

// MainRuleset loads another pf.conf, as the operator does: anchors keep what
// they hold.
func (f *Fake) MainRuleset(text string) {
	f.t.Helper()
	if _, err := pfconf.Parse(text); err != nil {
		f.t.Fatal(err)
	}
	f.update(func(w *world.World) { w.PF.Main = text })
}

// path is a packet on its way.
type path struct {
	w        *world.World
	proto    string
	src, dst netip.AddrPort
}

// Self are the host's addresses.
func (p path) Self() (out []netip.Addr) {
	for _, l := range p.w.Links {
		for _, text := range l.Inet {
			if l.Jail == "" {
				out = append(out, netip.MustParsePrefix(text).Addr())
			}
		}
	}
	return out
}

// inAnchor looks tables up in an anchor, then in the main ruleset.
type inAnchor struct {
	path
	anchor string
}

func (a inAnchor) Table(name string) []string {
	if list, ok := a.w.PF.Tables[world.TableKey(a.anchor, name)]; ok {
		return list
	}
	return a.w.PF.Tables[world.TableKey("", name)]
}

func (p path) pass(f *Fake) Verdict {
	f.t.Helper()
	pf := &p.w.PF
	for i := range pf.States {
		s := &pf.States[i]
		if s.In && s.Proto == p.proto && s.Client == p.src.String() && s.Dialled == p.dst.String() {
			s.Packets++ // renewed, whoever is in the table by now
			s.HalfOpen = false
			if s.Backend == "" {
				return Verdict{}
			}
			backend := netip.MustParseAddrPort(s.Backend)
			p.outbound(backend, false)
			return Verdict{Backend: backend}
		}
	}
	v, passed := p.translate(f)
	if !passed && !v.Dropped {
		v = p.filter(f)
	}
	if v.Refused || v.Dropped {
		return v
	}
	s := world.State{Proto: p.proto, In: true, Client: p.src.String(), Dialled: p.dst.String(), Packets: 1, HalfOpen: p.proto == "tcp"}
	if v.Backend.IsValid() {
		s.Backend = v.Backend.String()
	}
	pf.AddState(s)
	if v.Backend.IsValid() {
		p.outbound(v.Backend, s.HalfOpen)
	}
	return v
}

// enters tells whether translation sees the packet: it must come in through an
// interface.
func (p path) enters() bool {
	self := p.Self()
	if !slices.Contains(self, p.src.Addr()) && !p.src.Addr().IsLoopback() {
		return true
	}
	return p.w.Sysctls["net.pf.filter_local"] == "1" && !p.dst.Addr().IsLoopback()
}

// outbound is the other entry of a redirected flow, which the next packet makes
// anew when somebody killed it.
func (p path) outbound(backend netip.AddrPort, halfOpen bool) {
	pf := &p.w.PF
	for i := range pf.States {
		s := &pf.States[i]
		if !s.In && s.Proto == p.proto && s.Client == p.src.String() && s.Dialled == backend.String() {
			s.Packets++
			s.HalfOpen = halfOpen
			return
		}
	}
	pf.AddState(world.State{Proto: p.proto, Client: p.src.String(), Dialled: backend.String(), Packets: 1, HalfOpen: halfOpen})
}

// rules are those of an anchor, "" for the main ruleset.
func (p path) rules(f *Fake, anchor string) []pfconf.Rule {
	f.t.Helper()
	text := p.w.PF.Main
	if anchor != "" {
		text = p.w.PF.Anchors[anchor]
	}
	rules, err := pfconf.Parse(text)
	if err != nil {
		f.t.Fatalf("anchor %q: %v", anchor, err)
	}
	return rules.Rules
}

// called are the anchors that a hook of the main ruleset calls, in pf's order.
func (p path) called(name string) (anchors []string) {
	all := p.w.PF.AnchorNames()
	below, wild := strings.CutSuffix(name, "/*")
	for _, a := range all {
		rest, ok := strings.CutPrefix(a, below+"/")
		if a == name || wild && ok && !strings.Contains(rest, "/") {
			anchors = append(anchors, a)
		}
	}
	return anchors
}

func (p path) matches(r pfconf.Rule, anchor string) bool {
	in := inAnchor{p, anchor}
	port := func(end pfconf.End, have uint16) bool {
		return end.Port == "" || end.Port == strconv.Itoa(int(have))
	}
	switch {
	case r.Proto != "" && r.Proto != p.proto, r.AF == "inet6":
		return false
	case r.On != "" && !p.comesThrough(r.On):
		return false
	}
	return pfconf.Holds(r.From.Host, p.src.Addr(), in) && port(r.From, p.src.Port()) &&
		pfconf.Holds(r.To.Host, p.dst.Addr(), in) && port(r.To, p.dst.Port())
}

// comesThrough tells whether the packet arrives on an interface, which may be
// named by a group: that of the source's subnet, or of the default route. What
// the host sends itself arrives on lo0.
func (p path) comesThrough(on string) bool {
	if name, not := strings.CutPrefix(on, "! "); not {
		return !p.comesThrough(name)
	}
	l := p.arrives()
	return l != nil && (l.Name == on || slices.Contains(l.Groups, on))
}

func (p path) arrives() *world.Link {
	if slices.Contains(p.Self(), p.src.Addr()) || p.src.Addr().IsLoopback() {
		return p.w.Link("", "lo0")
	}
	for _, l := range p.w.Links {
		for _, text := range l.Inet {
			if l.Jail == "" && netip.MustParsePrefix(text).Contains(p.src.Addr()) {
				return l
			}
		}
	}
	for _, r := range p.w.Routes {
		if r.Jail == "" && r.Dest == "default" {
			return p.w.Link("", r.Link)
		}
	}
	return nil
}

// translate finds the first rdr that matches, of all rulesets in order; passed
// tells that no filter rule is asked any more.
func (p path) translate(f *Fake) (v Verdict, passed bool) {
	f.t.Helper()
	if !p.enters() {
		return v, false
	}
	for _, hook := range p.rules(f, "") {
		if hook.Kind != pfconf.RDRAnchor {
			continue
		}
		for _, anchor := range p.called(hook.Name) {
			for _, r := range p.rules(f, anchor) {
				if r.Kind != pfconf.RDR || !p.matches(r, anchor) {
					continue
				}
				if r.No {
					return v, false
				}
				v = p.target(r, anchor)
				return v, v.Backend.IsValid() && r.Pass
			}
		}
	}
	return v, false
}

func (p path) target(r pfconf.Rule, anchor string) Verdict {
	name := strings.Trim(r.Target.Host, "<>")
	members := []string{r.Target.Host}
	if name != r.Target.Host {
		members = inAnchor{p, anchor}.Table(name)
	}
	if len(members) == 0 { // 14 lets it through to the host
		return Verdict{Dropped: p.w.Knobs.Release >= 15}
	}
	key := world.TableKey(anchor, name)
	member := members[p.w.PF.Rotates[key]%len(members)]
	p.w.PF.Rotates[key]++
	port := p.dst.Port()
	if r.Target.Port != "" {
		port = netip.MustParseAddrPort("0.0.0.0:" + r.Target.Port).Port()
	}
	return Verdict{Backend: netip.AddrPortFrom(netip.MustParseAddr(member), port)}
}

// filter finds the first quick rule of the anchors that the main ruleset calls.
func (p path) filter(f *Fake) (v Verdict) {
	f.t.Helper()
	for _, hook := range p.rules(f, "") {
		if hook.Kind != pfconf.Anchor {
			continue
		}
		for _, anchor := range p.called(hook.Name) {
			for _, r := range p.rules(f, anchor) {
				if !r.Quick || r.Dir == "out" || !p.matches(r, anchor) {
					continue
				}
				v.Refused = r.Kind == pfconf.Block && strings.HasPrefix(r.Return, "return")
				v.Dropped = r.Kind == pfconf.Block && !v.Refused
				return v
			}
		}
	}
	return v
}
